//! A host's own logits processor as a processor of scores.

use std::{fmt, sync::Arc};

use candle_core::{Device, Tensor};
use eyrie::sample::{Fault, History, Processor};
use mistralrs_core::CustomLogitsProcessor;

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
        let run = || -> candle_core::Result<Vec<f32>> {
            #[expect(clippy::cast_possible_truncation, reason = "logits were f32")]
            let narrow: Vec<f32> = scores.iter().map(|score| *score as f32).collect();
            let width = narrow.len();
            let logits = Tensor::from_vec(narrow, width, &Device::Cpu)?;
            self.0.apply(&logits, &context)?.to_vec1()
        };
        let refused = |reason: String| Fault::Refused(format!("logits processor: {reason}").into());
        let changed = run().map_err(|error| refused(error.to_string()))?;
        if changed.len() != scores.len() {
            return Err(refused(format!(
                "{} logits of {}",
                changed.len(),
                scores.len()
            )));
        }
        for (score, new) in scores.iter_mut().zip(changed) {
            *score = new.into();
        }
        Ok(())
    }
}
