//! The draft-model pipeline of 0.8.1 waits for itself in its first step.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{self, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use mistralrs_core::{SpeculativeConfig, SpeculativeLoader};
use upstream_mistralrs::{PrefixCache, engine, load, loader, model};

use crate::mended;

/// Set for the process that tries.
const TRIES: &str = "UPSTREAM_DRAFT_MODEL";
/// For loading two tiny models; a plain engine answers its first request within a second.
const LOADS_IN: Duration = Duration::from_secs(60);
const ANSWERS_IN: Duration = Duration::from_secs(15);

/// The engine answers a request of its own before it is handed out. Compared: a process that has loaded
/// the pipeline says so and should then come to say that the engine is built. It burns a core for ever,
/// so it is a process, which can be ended.
#[test]
fn the_draft_model_pipeline_deadlocks() -> Result<()> {
    if env::var_os(TRIES).is_some() {
        // If the process that started it is gone, it ends by itself.
        thread::spawn(|| {
            thread::sleep(LOADS_IN + ANSWERS_IN + ANSWERS_IN);
            process::exit(1);
        });
        return tokio::runtime::Runtime::new()?.block_on(build());
    }
    let mut child = Command::new(env::current_exe()?)
        .args([
            "--exact",
            "draft_model::the_draft_model_pipeline_deadlocks",
            "--nocapture",
        ])
        .env(TRIES, "1")
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let (sender, said) = mpsc::channel();
    thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    let loaded = hears(&said, "loaded", LOADS_IN);
    let built = loaded && hears(&said, "built", ANSWERS_IN);
    let ended = child.try_wait()?;
    child.kill()?;
    child.wait()?;
    assert!(loaded, "the pipeline was not loaded in {LOADS_IN:?}");
    assert!(
        !built,
        "{}",
        mended("the deadlock of the draft-model pipeline")
    );
    assert_eq!(ended, None, "it ended instead of waiting for ever");
    Ok(())
}

/// Whether `line` is among what is said within `limit`.
fn hears(said: &mpsc::Receiver<String>, line: &str, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while let Ok(heard) = said.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if heard == line {
            return true;
        }
    }
    false
}

/// The target is its own draft model.
async fn build() -> Result<()> {
    let dir = model()?;
    let loader = SpeculativeLoader {
        target: loader(dir.path())?,
        draft: loader(dir.path())?,
        config: SpeculativeConfig { gamma: 3 },
    };
    let pipeline = load(&loader)?;
    say("loaded")?;
    let engine = engine(pipeline, PrefixCache::Off).await;
    say("built")?;
    drop(engine);
    Ok(())
}

/// A line of its own, whatever the test harness has written before it.
fn say(word: &str) -> Result<()> {
    let mut out = std::io::stdout();
    write!(out, "\n{word}\n")?;
    Ok(out.flush()?)
}
