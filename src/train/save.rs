//! A training on disk, to go on with.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    path::Path,
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};

use super::{Data, Measured, Place, Recipe, TrainError, Trainer, adam::Adam, mat::Mat, net::Part};
use crate::{TokenId, error::Result, model::load::Checkpoint};

/// What has to be the same when it goes on.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    recipe: Recipe,
    place: Place,
    optimiser_steps: u64,
    history: Vec<(Place, Measured)>,
    target: String,
    /// Sequences and tokens of the data.
    data: (usize, usize),
}

impl Trainer {
    fn about(&self) -> About {
        let entries = self.data.entries();
        About {
            recipe: self.recipe.clone(),
            place: self.place,
            optimiser_steps: self.adam.steps,
            history: self.history.clone(),
            target: self.data.facts().target.clone(),
            data: (
                entries.len(),
                entries.iter().map(|entry| entry.tokens).sum(),
            ),
        }
    }

    /// Writes all that is needed to go on to the file `path`, which is replaced when the new one is
    /// whole.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn save(&self, path: &Path) -> Result<(), TrainError> {
        let mut tensors: Vec<(String, Dtype, Vec<u8>)> = Vec::new();
        let floats =
            |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|x| x.to_le_bytes()).collect() };
        for part in Part::ALL {
            let (name, at) = (part.name(), part as usize);
            let held = [
                ("weight", &*self.weights.get(part).view()),
                ("mean", &self.adam.mean[at][..]),
                ("square", &self.adam.square[at][..]),
            ]
            .map(|(kind, values)| (format!("{name}.{kind}"), Dtype::F32, floats(values)));
            tensors.extend(held);
        }
        tensors.push(("scales".to_owned(), Dtype::F32, floats(&self.scales)));
        let ids = self.frozen.ids.iter().flat_map(|id| id.to_le_bytes());
        tensors.push(("ids".to_owned(), Dtype::U32, ids.collect()));
        let failed = |error: std::io::Error| TrainError::io(path, "write it")(error);
        let about = serde_json::to_string(&self.about()).map_err(|e| failed(e.into()))?;
        let views = tensors.iter().map(|(name, dtype, bytes)| {
            let view = TensorView::new(*dtype, vec![bytes.len() / 4], bytes);
            Ok((
                name.as_str(),
                view.map_err(|e| failed(std::io::Error::other(e)))?,
            ))
        });
        let views = views.collect::<Result<Vec<_>, TrainError>>()?;
        let about = HashMap::from([("about".to_owned(), about)]);
        let bytes = safetensors::serialize(views, Some(about));
        let bytes = bytes.map_err(|e| failed(std::io::Error::other(e)))?;
        replace(path, &bytes)
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
        let now = trainer.about();
        for (what, same, there, accepted) in [
            (
                "the target",
                about.target == now.target,
                about.target.clone(),
                now.target.clone(),
            ),
            (
                "the recipe",
                about.recipe == now.recipe,
                format!("{:?}", about.recipe),
                format!("{:?}", now.recipe),
            ),
            (
                "data of sequences and tokens",
                about.data == now.data,
                format!("{:?}", about.data),
                format!("{:?}", now.data),
            ),
        ] {
            if !same {
                return Err(wrong(format!(
                    "{what} of the saved training: {there}; accepted is {accepted}, as now, or another \
                     folder"
                ))
                .into());
            }
        }
        let tensors = SafeTensors::deserialize(&bytes).map_err(|e| wrong(e.to_string()))?;
        let tensors: BTreeMap<String, TensorView<'_>> = tensors.tensors().into_iter().collect();
        let words = |name: &str, count: usize| -> Result<Vec<[u8; 4]>, TrainError> {
            let found = tensors.get(name).map(|tensor| tensor.data());
            let found = found.filter(|bytes| bytes.len() == 4 * count);
            let found = found.ok_or_else(|| wrong(format!("no {name} of {count} values")))?;
            Ok(found.as_chunks::<4>().0.to_vec())
        };
        let floats = |name: &str, count: usize| -> Result<Vec<f32>, TrainError> {
            let words = words(name, count)?;
            Ok(words.into_iter().map(f32::from_le_bytes).collect())
        };
        let ids = words("ids", trainer.frozen.ids.len())?;
        let ids: Vec<TokenId> = ids.into_iter().map(u32::from_le_bytes).collect();
        if ids != trainer.frozen.ids {
            let what = "another draft vocabulary; accepted is that of the data and template as now";
            return Err(wrong(what.to_owned()).into());
        }
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

/// Writes a file that is there whole, or as it was before.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = path.with_file_name(format!(".{name}.part"));
    let written = fs::write(&part, bytes)
        .and_then(|()| File::open(&part)?.sync_all())
        .and_then(|()| fs::rename(&part, path));
    written.map_err(TrainError::io(path, "write it"))
}
