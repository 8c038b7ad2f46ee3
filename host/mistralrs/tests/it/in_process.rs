//! Requests as a program that embeds the host sends them.

use std::time::Duration;

use mistralrs_core::{
    CompletionResponse, Constraint, MistralRs, NormalRequest, Request, RequestMessage, Response,
    SamplingParams,
};
use tokio::sync::mpsc::{Receiver, channel, error::SendError};

/// What came of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Done(Box<CompletionResponse>),
    /// Refused, or ended by an error.
    Failed(String),
    /// The channel was closed without an answer.
    Nothing,
}

impl Answer {
    /// The text of a completion's only choice.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Done(done) => &done.choices[0].text,
            other => panic!("no answer: {other:?}"),
        }
    }

    /// Why it failed.
    #[track_caller]
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Failed(reason) => reason,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// What speculation did.
    #[track_caller]
    pub(crate) fn usage(&self) -> &mistralrs_core::SpeculativeUsage {
        match self {
            Self::Done(done) => done.usage.speculative.as_ref().expect("it is counted"),
            other => panic!("no answer: {other:?}"),
        }
    }
}

/// A request for a completion of `prompt`, greedy, of 12 tokens.
pub(crate) fn completion(prompt: &str) -> NormalRequest {
    let text = prompt.to_owned();
    let messages = RequestMessage::Completion {
        text,
        echo_prompt: false,
        best_of: None,
    };
    of(messages)
}

/// A greedy request of 12 tokens.
pub(crate) fn of(messages: RequestMessage) -> NormalRequest {
    let params = SamplingParams {
        temperature: Some(0.0),
        max_len: Some(12),
        ..SamplingParams::neutral()
    };
    let (sender, _) = channel(1);
    NormalRequest::new_simple(messages, params, sender, 0, None, None)
}

/// The same under a constraint.
pub(crate) fn under(constraint: Constraint, mut request: NormalRequest) -> NormalRequest {
    request.constraint = constraint;
    request
}

/// Sends a request to `model`; what comes of it comes through the receiver. The sender of an engine
/// that is about to end is tried again.
pub(crate) async fn send(
    host: &MistralRs,
    model: &str,
    mut request: NormalRequest,
) -> Receiver<Response> {
    let (sender, receiver) = channel(10_000);
    request.response = sender;
    request.id = host.next_request_id();
    let mut request = Request::Normal(Box::new(request));
    for _ in 0..500 {
        let engine = host.get_sender(Some(model)).expect("the model is there");
        match engine.send(request).await {
            Ok(()) => return receiver,
            Err(SendError(back)) => request = back,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the engine of {model} has ended and does not start again");
}

/// Waits for the end of a request.
pub(crate) async fn wait(receiver: &mut Receiver<Response>) -> Answer {
    let limit = Duration::from_secs(60);
    loop {
        let response = tokio::time::timeout(limit, receiver.recv()).await;
        match response.expect("an answer within a minute") {
            None => return Answer::Nothing,
            Some(Response::CompletionDone(done)) => return Answer::Done(Box::new(done)),
            Some(Response::Done(done)) => {
                let texts = done.choices.into_iter().map(|c| c.message.content);
                return Answer::Failed(format!("chat: {:?}", texts.collect::<Vec<_>>()));
            }
            Some(Response::InternalError(error) | Response::ValidationError(error)) => {
                return Answer::Failed(error.to_string());
            }
            Some(Response::ModelError(error, _) | Response::CompletionModelError(error, _)) => {
                return Answer::Failed(format!("the whole step failed: {error}"));
            }
            Some(_) => {}
        }
    }
}

/// Sends a request and waits for its end.
pub(crate) async fn ask(host: &MistralRs, model: &str, request: NormalRequest) -> Answer {
    wait(&mut send(host, model, request).await).await
}
