//! Defects of decoding: what a sequence gets depends on its neighbours, or on those before it.

use anyhow::Result;
use upstream_mistralrs::{Host, PrefixCache, finish};

use crate::mended;

/// Two prompts of the same length.
const FIRST: [u32; 6] = [1, 11, 12, 13, 14, 15];
const SECOND: [u32; 6] = [1, 24, 8, 22, 8, 17];

/// Every row of a decode step on the CPU gets the attention of the last row. Compared: the first of two
/// prompts that decode greedily in one batch with the same prompt alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_decodes_wrongly_on_the_cpu() -> Result<()> {
    let host = Host::start(PrefixCache::Off).await?;
    let alone = (
        host.greedy(&FIRST, 24).await?,
        host.greedy(&SECOND, 24).await?,
    );
    let again = (
        host.greedy(&FIRST, 24).await?,
        host.greedy(&SECOND, 24).await?,
    );
    assert_eq!(alone, again, "greedy decoding of one prompt is repeatable");

    // They are one batch only if the engine sees both before it starts.
    for _ in 0..5 {
        let receivers = (
            host.begin(&FIRST, 24).await?,
            host.begin(&SECOND, 24).await?,
        );
        let together = (finish(receivers.0).await?, finish(receivers.1).await?);
        if together.0 != alone.0 {
            assert_eq!(
                together.0[0], alone.0[0],
                "the prompt step was seen to be right"
            );
            assert_eq!(together.1, alone.1, "the last row was seen to be right");
            return Ok(());
        }
    }
    panic!("{}", mended("CPU decoding in batches"));
}

/// The prefix cache keeps the last sampled token, whose keys and values were never computed, and so a
/// prompt that continues behind it reads zeros there. Compared: decoding with the cache and without it,
/// from a prompt, all that was generated from it and two tokens more.
#[tokio::test(flavor = "multi_thread")]
async fn the_prefix_cache_has_a_hole_at_the_last_token() -> Result<()> {
    let cold = Host::start(PrefixCache::Off).await?;
    let generated = cold.greedy(&SECOND, 20).await?;
    assert_eq!(generated.len(), 20, "no early end");
    let through = [&SECOND[..], &generated, &[4, 5]].concat();
    let short = [&SECOND[..], &generated[..19], &[4, 5]].concat();
    // An engine for each, because what the first leaves in the cache would serve the second.
    for (prompt, right) in [(&short, true), (&through, false)] {
        let warm = Host::start(PrefixCache::On).await?;
        assert_eq!(warm.greedy(&SECOND, 20).await?, generated);
        let (warm, cold) = (
            warm.greedy(prompt, 16).await?,
            cold.greedy(prompt, 16).await?,
        );
        if right {
            assert_eq!(warm, cold, "without the last token there is no hole");
        } else {
            assert_ne!(warm, cold, "{}", mended("the prefix cache"));
        }
    }
    Ok(())
}

/// The context limit is compared with the generated tokens alone. Compared: a prompt that leaves room
/// for 6 tokens and asks for 40 of 256 positions; it should end with `length`.
#[tokio::test(flavor = "multi_thread")]
async fn the_context_limit_forgets_the_prompt() -> Result<()> {
    let host = Host::start(PrefixCache::Off).await?;
    let prompt = [7; 250];
    assert_eq!(host.greedy(&prompt, 6).await?.len(), 6);
    let over = host.greedy(&prompt, 40).await;
    assert!(over.is_err(), "{}: {over:?}", mended("the context limit"));
    Ok(())
}
