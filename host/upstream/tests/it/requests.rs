//! The mixed requests, one at a time.

use eyrie_host_client::mixed;
use upstream_mistralrs::{Host, PrefixCache};

#[tokio::test(flavor = "multi_thread")]
async fn the_mixed_requests_pass_one_at_a_time() -> anyhow::Result<()> {
    let host = Host::start(PrefixCache::Off).await?;
    let client = host.client()?;
    let mut wrong = Vec::new();
    for request in mixed()? {
        let outcome = client.send("default", &request).await;
        println!("{}: {outcome:?}", request.name);
        if let Err(what) = outcome.check(&request) {
            wrong.push(format!("{}: {what}", request.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}
