//! The mixed requests, one at a time.

use anyhow::Result;
use eyrie_host_client::{Outcome, Request, mixed};
use serde_json::Value;
use upstream_mistralrs::{Host, PrefixCache};

/// What the published pipeline does not do although the request asks for it: the bias of `logit bias` is
/// ignored, and the log probabilities are to base 10 (both in [`crate::sampling`]); the stream of
/// `stop of one token` is right, because only stop texts of several tokens leak (in [`crate::stream`]);
/// the rows of `three choices` and `disconnected` are mixed up (in [`crate::decode`]); and a completion
/// stream has no usage. None of it changes the form of an answer, which is what is checked here.
#[tokio::test(flavor = "multi_thread")]
async fn the_mixed_requests_pass_one_at_a_time() -> Result<()> {
    let host = Host::start(PrefixCache::Off).await?;
    let client = host.client()?;
    let mut wrong = Vec::new();
    for request in mixed()? {
        let outcome = client.send("default", &request).await;
        let checked = outcome
            .check(&request)
            .and_then(|()| more(&request, &outcome));
        if let Err(what) = checked {
            wrong.push(format!("{}: {what}", request.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// What this model with these prompts and grammars must give.
fn more(request: &Request, outcome: &Outcome) -> Result<(), String> {
    let first = outcome.choices.first();
    let text = first.map_or("", |choice| choice.text.as_str());
    let reason = first.and_then(|choice| choice.finish_reason.as_deref());
    let lower = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    let fits = match request.name.as_str() {
        "json schema" => ["\"yes\"", "\"no\""].contains(&text),
        "regular expression" => text.split_once(' ').is_some_and(|(a, b)| {
            lower(a) && lower(b) && (3..=5).contains(&a.len()) && (2..=4).contains(&b.len())
        }),
        "stop text of two tokens" => text == "in aiyer" && reason == Some("stop"),
        "stop of one token" => reason == Some("stop"),
        _ => true,
    };
    let most = request.body.get("max_tokens").and_then(Value::as_u64);
    let usage = outcome.usage.as_ref();
    let used = usage.and_then(|usage| usage.get("completion_tokens")?.as_u64());
    let bound = most
        .zip(used)
        .is_none_or(|(most, used)| used <= most * choices(request));
    if fits && bound {
        Ok(())
    } else {
        Err(format!("{text:?}, {reason:?}, {used:?} tokens"))
    }
}

fn choices(request: &Request) -> u64 {
    u64::try_from(request.choices()).unwrap_or(u64::MAX)
}
