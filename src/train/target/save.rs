//! A target's training on disk, to go on with.

use std::{collections::HashMap, fs, io, path::Path};

use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};

use super::{TargetRecipe, TargetTrainer, Texts, net::var, texts::TextFacts};
use crate::{
    error::Result,
    train::{TrainError, data::difference, files::replace, save::Floats},
};

/// What is saved beside the tensors.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    recipe: TargetRecipe,
    texts: TextFacts,
    tokenizer: String,
    step: usize,
    history: Vec<(usize, f64)>,
}

/// What there is of each parameter.
const KINDS: [&str; 3] = ["weight", "mean", "square"];

impl TargetTrainer {
    /// Writes all that is needed to go on to the file `path`, which is replaced when the new one is
    /// whole.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn save(&self, path: &Path) -> Result<()> {
        let about = About {
            recipe: self.recipe.clone(),
            texts: self.facts.clone(),
            tokenizer: self.tokenizer.clone(),
            step: self.step,
            history: self.history.clone(),
        };
        let about = serde_json::to_string(&about).map_err(io::Error::other);
        let about = about.map_err(TrainError::io(path, "write it"))?;
        let about = HashMap::from([("about".to_owned(), about)]);
        let weights = self.net.vars.iter();
        let weights = weights.map(|var| var.flatten_all()?.to_vec1::<f32>());
        let weights: Vec<_> = weights.collect::<candle_core::Result<_>>()?;
        let held = [&weights, &self.adam.mean, &self.adam.square];
        let tensors = KINDS.iter().zip(held).flat_map(|(kind, all)| {
            let all = all.iter().enumerate();
            all.map(move |(at, values)| (format!("{at}.{kind}"), Floats::new(values)))
        });
        let tensors: Vec<_> = tensors.collect();
        replace(path, |part| {
            safetensors::serialize_to_file(tensors, Some(about), part).map_err(io::Error::other)
        })?;
        Ok(())
    }

    /// Goes on with what was saved to `path`.
    ///
    /// # Errors
    /// If it is no training of a target, or one of other texts or another recipe.
    pub fn resume(path: &Path, texts: &Texts, recipe: TargetRecipe) -> Result<Self> {
        let wrong = |what: String| TrainError::file(path, what);
        let bytes = fs::read(path).map_err(TrainError::io(path, "read it"))?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| wrong(e.to_string()))?;
        let about = header.metadata().as_ref().and_then(|all| all.get("about"));
        let about = about.ok_or_else(|| wrong("is no saved training".to_owned()))?;
        let about: About = serde_json::from_str(about).map_err(|e| wrong(e.to_string()))?;
        let different = difference(&about.recipe, &recipe);
        if let Some(what) = different.or_else(|| difference(&about.texts, texts.facts())) {
            return Err(wrong(what).into());
        }
        if about.step > recipe.steps {
            let what = format!("step {}; accepted is up to {}", about.step, recipe.steps);
            return Err(wrong(what).into());
        }
        let mut trainer = Self::with(texts, recipe, about.tokenizer)?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|e| wrong(e.to_string()))?;
        let floats = |at: usize, kind: &str, count: usize| -> Result<Vec<f32>, TrainError> {
            let name = format!("{at}.{kind}");
            let found = tensors.tensor(&name).ok();
            let found = found.filter(|tensor| tensor.data().len() == 4 * count);
            let found = found.ok_or_else(|| wrong(format!("no {name} of {count} values")))?;
            let words = found.data().as_chunks::<4>().0.iter();
            Ok(words.map(|word| f32::from_le_bytes(*word)).collect())
        };
        let [weight, mean, square] = KINDS;
        for (at, held) in trainer.net.vars.iter().enumerate() {
            let count = held.elem_count();
            let saved = var(floats(at, weight, count)?, held.dims())?;
            held.set(saved.as_tensor())?;
            trainer.adam.mean[at] = floats(at, mean, count)?;
            trainer.adam.square[at] = floats(at, square, count)?;
        }
        trainer.adam.steps = i32::try_from(about.step).unwrap_or(i32::MAX);
        (trainer.step, trainer.history) = (about.step, about.history);
        Ok(trainer)
    }
}
