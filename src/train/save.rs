//! A training on disk, to go on with.

use std::{borrow::Cow, collections::HashMap, fs, io, path::Path};

use safetensors::{Dtype, SafeTensors, View};
use serde::{Deserialize, Serialize};

use super::{
    Data, Facts, Measured, Place, Recipe, TrainError, Trainer, adam::Adam, data::difference,
    files::replace, mat::Mat, net::Part,
};
use crate::{TokenId, error::Result, model::load::Checkpoint};

/// What has to be the same when it goes on.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Same {
    facts: Facts,
    recipe: Recipe,
    /// Sequences that are trained on and measured with, and all their tokens.
    sequences: usize,
    tokens: usize,
    /// The draft vocabulary.
    ids: Vec<TokenId>,
}

/// How far it has come.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    same: Same,
    place: Place,
    optimiser_steps: u64,
    history: Vec<(Option<Place>, Measured)>,
}

impl Trainer {
    fn same(&self) -> Same {
        let used = || self.train.iter().chain(&self.held);
        Same {
            facts: self.data.facts().clone(),
            recipe: self.recipe.clone(),
            sequences: used().count(),
            tokens: used().map(|(entry, _)| entry.tokens).sum(),
            ids: self.frozen.ids.clone(),
        }
    }

    /// Writes all that is needed to go on to the file `path`, which is replaced when the new one is
    /// whole.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn save(&self, path: &Path) -> Result<(), TrainError> {
        let about = About {
            same: self.same(),
            place: self.place,
            optimiser_steps: self.adam.steps,
            history: self.history.clone(),
        };
        let about = serde_json::to_string(&about).map_err(io::Error::other);
        let about = about.map_err(TrainError::io(path, "write it"))?;
        let views = Part::ALL.map(|part| self.weights.get(part).view());
        let mut tensors = vec![("scales".to_owned(), Floats::new(&self.scales))];
        for part in Part::ALL {
            let at = part as usize;
            let held: [(&str, &[f32]); 3] = [
                ("weight", &views[at]),
                ("mean", &self.adam.mean[at]),
                ("square", &self.adam.square[at]),
            ];
            let named = |kind| format!("{}.{kind}", part.name());
            tensors.extend(held.map(|(kind, values)| (named(kind), Floats::new(values))));
        }
        let about = HashMap::from([("about".to_owned(), about)]);
        replace(path, |part| {
            safetensors::serialize_to_file(tensors, Some(about), part).map_err(io::Error::other)
        })
    }

    /// Goes on with what was saved to `path`.
    ///
    /// # Errors
    /// If it is no training, or one of another target, data or recipe.
    pub fn resume(
        path: &Path,
        checkpoint: &Checkpoint,
        data: Data,
        recipe: Recipe,
        forced: &[TokenId],
    ) -> Result<Self> {
        let wrong = |what: String| TrainError::file(path, what);
        let bytes = fs::read(path).map_err(TrainError::io(path, "read it"))?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| wrong(e.to_string()))?;
        let about = header.metadata().as_ref().and_then(|all| all.get("about"));
        let about = about.ok_or_else(|| wrong("is no saved training".to_owned()))?;
        let about: About = serde_json::from_str(about).map_err(|e| wrong(e.to_string()))?;
        let mut trainer = Self::unstarted(checkpoint, data, recipe, forced)?;
        let (there, now) = (&about.same, trainer.same());
        let different = difference(&there.facts, &now.facts)
            .or_else(|| difference(&there.recipe, &now.recipe))
            .or_else(|| difference(there, &now));
        if let Some(what) = different {
            return Err(wrong(what).into());
        }
        if !trainer.has(about.place) {
            return Err(wrong(format!("a place that does not exist: {:?}", about.place)).into());
        }
        let tensors = SafeTensors::deserialize(&bytes).map_err(|e| wrong(e.to_string()))?;
        let floats = |name: &str, count: usize| -> Result<Vec<f32>, TrainError> {
            let found = tensors.tensor(name).ok();
            let found = found.filter(|tensor| tensor.data().len() == 4 * count);
            let found = found.ok_or_else(|| wrong(format!("no {name} of {count} values")))?;
            let words = found.data().as_chunks::<4>().0.iter();
            Ok(words.map(|word| f32::from_le_bytes(*word)).collect())
        };
        trainer.scales = floats("scales", trainer.scales.len())?;
        let mut adam = Adam::new(&trainer.form);
        for part in Part::ALL {
            let (name, at) = (part.name(), part as usize);
            let (rows, cols) = trainer.form.shape(part);
            let weights = floats(&format!("{name}.weight"), rows * cols)?;
            trainer.weights.set(part, Mat::new(cols, weights)?);
            adam.mean[at] = floats(&format!("{name}.mean"), rows * cols)?;
            adam.square[at] = floats(&format!("{name}.square"), rows * cols)?;
        }
        adam.steps = about.optimiser_steps;
        (trainer.adam, trainer.place) = (adam, about.place);
        trainer.history = about.history;
        Ok(trainer)
    }
}

/// Floats to be saved, which become bytes when it is their turn.
pub(super) struct Floats<'a> {
    values: &'a [f32],
    shape: [usize; 1],
}

impl<'a> Floats<'a> {
    pub(super) fn new(values: &'a [f32]) -> Self {
        let shape = [values.len()];
        Self { values, shape }
    }
}

impl View for Floats<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.values.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    fn data_len(&self) -> usize {
        4 * self.values.len()
    }
}
