//! Requests that do not go over HTTP: token ids in, token ids out.

use anyhow::{Context, Result, bail};
use mistralrs_core::{
    CompletionResponse, NormalRequest, Request, RequestMessage, Response, SamplingParams,
};
use tokio::sync::mpsc::{Receiver, channel};

use crate::Host;

impl Host {
    /// Starts greedy decoding of `tokens` tokens after `prompt`. Dropping the receiver is what a client
    /// does who closes the connection.
    ///
    /// # Errors
    /// If the engine does not take the request.
    pub async fn begin(&self, prompt: &[u32], tokens: usize) -> Result<Receiver<Response>> {
        let (sender, receiver) = channel(10_000);
        let params = SamplingParams {
            temperature: Some(0.0),
            top_n_logprobs: 1,
            max_len: Some(tokens),
            ..SamplingParams::neutral()
        };
        let id = self.mistralrs.next_request_id();
        let prompt = RequestMessage::CompletionTokens(prompt.to_vec());
        let mut request = NormalRequest::new_simple(prompt, params, sender, id, None, None);
        request.return_logprobs = true;
        let engine = self.mistralrs.get_sender(None).context("an engine")?;
        let sent = engine.send(Request::Normal(Box::new(request))).await;
        sent.ok().context("the engine takes no request")?;
        Ok(receiver)
    }

    /// Greedy decoding of `tokens` tokens after `prompt`.
    ///
    /// # Errors
    /// If there is no complete answer.
    pub async fn greedy(&self, prompt: &[u32], tokens: usize) -> Result<Vec<u32>> {
        finish(self.begin(prompt, tokens).await?).await
    }
}

/// The tokens of the answer that comes through `receiver`.
///
/// # Errors
/// If there is no complete answer.
pub async fn finish(mut receiver: Receiver<Response>) -> Result<Vec<u32>> {
    match receiver.recv().await {
        Some(Response::CompletionDone(answer)) => {
            tokens(&answer).context("no tokens in the answer")
        }
        Some(Response::CompletionModelError(message, _)) => bail!("{message}"),
        Some(Response::InternalError(error) | Response::ValidationError(error)) => bail!("{error}"),
        Some(_) => bail!("an answer of another kind"),
        None => bail!("no answer"),
    }
}

/// At temperature 0 the likeliest token is the one that was chosen, and it comes with its id.
fn tokens(answer: &CompletionResponse) -> Option<Vec<u32>> {
    let logprobs = answer.choices.first()?.logprobs.as_ref()?;
    let each = logprobs.content.as_ref()?.iter();
    each.map(|of| of.top_logprobs.first().map(|top| top.token))
        .collect()
}
