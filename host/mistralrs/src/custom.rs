//! A host's own logits processor as a processor of scores.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use candle_core::{Device, Tensor};
use eyrie::sample::{Fault, History, Processor};
use mistralrs_core::CustomLogitsProcessor;

/// Most characters of a foreign reason.
const LONGEST: usize = 200;

/// The host's processors see `f32` scores after bias and penalties, before the temperature, as its own
/// sampler shows them.
pub(crate) struct Custom(pub(crate) Arc<dyn CustomLogitsProcessor>);

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Custom")
    }
}

impl Processor for Custom {
    fn process(&self, scores: &mut [f64], history: &History<'_>) -> Result<(), Fault> {
        let context: Vec<u32> = history.context().collect();
        #[expect(clippy::cast_possible_truncation, reason = "logits were f32")]
        let narrow: Vec<f32> = scores.iter().map(|score| *score as f32).collect();
        let changed = guarded("logits processor", || {
            let logits = Tensor::from_vec(narrow, scores.len(), &Device::Cpu)?;
            let changed: Vec<f32> = self.0.apply(&logits, &context)?.to_vec1()?;
            let (got, asked) = (changed.len(), scores.len());
            anyhow::ensure!(got == asked, "{got} logits of {asked}");
            Ok(changed)
        })?;
        for (score, new) in scores.iter_mut().zip(changed) {
            *score = new.into();
        }
        Ok(())
    }
}

/// Runs code that is not ours inside of a pass that many requests share: an error or a panic of it
/// ends the request that brought it.
///
/// # Errors
/// The first line of what went wrong, with `name` before it.
pub(crate) fn guarded<T>(name: &str, run: impl FnOnce() -> anyhow::Result<T>) -> Result<T, Fault> {
    let reason = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => format!("{error:#}"),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            format!("panicked: {}", text.unwrap_or("without a text"))
        }
    };
    let line: String = reason
        .lines()
        .next()
        .into_iter()
        .flat_map(str::chars)
        .take(LONGEST)
        .collect();
    Err(Fault::Refused(format!("{name}: {line}").into()))
}
