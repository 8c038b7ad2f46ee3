//! One question to a model, answered by mistral.rs with drafts from the text so far.

use anyhow::{Context, Result, bail};
use eyrie_mistralrs::{EyrieLoader, Options};
use mistralrs_core::{
    MessageContent, MistralRsBuilder, NormalRequest, Request, RequestMessage, Response,
    SamplingParams,
};

#[tokio::main]
async fn main() -> Result<()> {
    let model = std::env::args().nth(1).context("usage: embed MODEL")?;

    // Step 2: the loader.
    let flags = ["--model", &model, "--drafter", "ngram", "--depth", "4"];
    let loader = EyrieLoader::new(Options::parse(flags)?);

    // Step 3: its pipeline and its scheduler, for the host's builder.
    let pipeline = loader.pipeline("my-model", true)?;
    let host = MistralRsBuilder::new(pipeline, loader.scheduler(), false, None)
        .with_no_prefix_cache(true)
        .build()
        .await;

    // From here on all is mistral.rs' own.
    let text = |text: &str| MessageContent::Left(text.to_owned());
    let message = [
        ("role".to_owned(), text("user")),
        ("content".to_owned(), text("What is the capital of France?")),
    ];
    let messages = RequestMessage::Chat {
        messages: vec![message.into_iter().collect()],
        enable_thinking: None,
        reasoning_effort: None,
    };
    let params = SamplingParams {
        temperature: Some(0.0),
        max_len: Some(40),
        ..SamplingParams::neutral()
    };
    let (sender, mut answers) = tokio::sync::mpsc::channel(1);
    let id = host.next_request_id();
    let request = NormalRequest::new_simple(messages, params, sender, id, None, None);
    host.get_sender(None)?
        .send(Request::Normal(Box::new(request)))
        .await?;
    match answers.recv().await {
        Some(Response::Done(answer)) => {
            let choice = answer.choices.first().context("no choice")?;
            println!("{}", choice.message.content.as_deref().unwrap_or_default());
            println!("{:?}", answer.usage.speculative);
            Ok(())
        }
        Some(Response::InternalError(error) | Response::ValidationError(error)) => bail!("{error}"),
        Some(_) => bail!("an answer of another kind"),
        None => bail!("no answer"),
    }
}
