//! Defects of streams.

use anyhow::Result;
use eyrie_host_client::Request;
use upstream_mistralrs::{Host, PrefixCache};

use crate::mended;

/// A stop text is looked for one token late, when a stream has sent it already. Compared: the text of the
/// same greedy request in one piece and streamed.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_contains_the_stop_text_and_one_more_token() -> Result<()> {
    let host = Host::start(PrefixCache::Off).await?;
    let client = host.client()?;
    let whole = Request::completion("stop", "stop here")
        .with("max_tokens", 40)
        .with("temperature", 0)
        .with("stop", "y2");
    let streamed = whole.clone().with("stream", true);
    let mut texts = Vec::new();
    for request in [&whole, &streamed] {
        let outcome = client.send("default", request).await;
        assert_eq!(outcome.check(request), Ok(()));
        assert_eq!(outcome.choices[0].finish_reason.as_deref(), Some("stop"));
        texts.push(outcome.choices[0].text.clone());
    }
    let [whole, streamed] = &texts[..] else {
        panic!("two texts");
    };
    assert!(
        !whole.contains("y2") && streamed.starts_with(whole.as_str()),
        "{texts:?}"
    );
    let leaked = streamed[whole.len()..].strip_prefix("y2");
    let leaked = leaked.is_some_and(|more| !more.is_empty());
    assert!(leaked, "{}: {texts:?}", mended("stop texts in streams"));
    Ok(())
}
