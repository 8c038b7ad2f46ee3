//! Defects of the engine: what one client does reaches another.

use std::time::Duration;

use anyhow::Result;
use upstream_mistralrs::{Host, PrefixCache, finish};

use crate::mended;

/// An answer that nobody waits for is an error that ends the engine's thread. Compared: a request that
/// is the only one with the same request beside a shorter one whose client has gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_takes_the_others_with_it() -> Result<()> {
    let host = Host::start(PrefixCache::Off).await?;
    let prompt = [1, 11, 12, 13, 14, 15];
    assert!(host.greedy(&prompt, 40).await.is_ok());

    drop(host.begin(&prompt, 8).await?);
    let other = finish(host.begin(&prompt, 40).await?).await;
    assert!(
        other.is_err(),
        "{}: {other:?}",
        mended("the error of a client that has gone")
    );
    // A later request starts the engine again, once its thread has ended.
    for _ in 0..100 {
        if host.greedy(&prompt, 4).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the engine was not started again");
}
