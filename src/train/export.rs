//! The trained head as every engine loads it: the form of its paper's own code, without any option.

use std::{collections::HashMap, fs, io, path::Path};

use half::{bf16, f16};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

use super::{TrainError, Trainer, data::default_taps, files::replace, net::Part};
use crate::{
    draft::eagle::{HeadCheckpoint, HeadOptions, TargetFacts, Version},
    error::Result,
    model::load::Checkpoint,
};

const CONFIG: &str = "config.json";
const TENSORS: &str = "model.safetensors";

/// Type of the tensors of what is exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadType {
    /// 32 bits: as trained.
    F32,
    /// Half precision.
    #[default]
    F16,
    /// The upper half of 32 bits.
    Bf16,
}

impl HeadType {
    pub(super) fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::BF16,
        }
    }

    /// Its name, as PyTorch has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }

    /// Values as bytes; the first that this type has no number for, if there is one.
    pub(super) fn bytes(self, values: &[f32]) -> Result<Vec<u8>, f32> {
        let beyond =
            |x: &&f32| self == Self::F16 && x.is_finite() && !f16::from_f32(**x).is_finite();
        if let Some(x) = values.iter().find(|x| !x.is_finite() || beyond(x)) {
            return Err(*x);
        }
        Ok(match self {
            Self::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Self::F16 => (values.iter())
                .flat_map(|x| f16::from_f32(*x).to_le_bytes())
                .collect(),
            Self::Bf16 => (values.iter())
                .flat_map(|x| bf16::from_f32(*x).to_le_bytes())
                .collect(),
        })
    }
}

/// A tensor to be written.
type Tensor = (String, Dtype, Vec<usize>, Vec<u8>);

impl Trainer {
    /// Writes the head to the folder `dir`, which is made if need be, and reads it back. What the taps
    /// are divided by in training becomes part of `fc`.
    ///
    /// # Errors
    /// If the folder cannot be written, or a value has no place in the type; if what was written is not
    /// understood.
    pub fn export(&self, checkpoint: &Checkpoint, head_type: HeadType, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir).map_err(TrainError::io(dir, "make the folder"))?;
        let tensors = self.tensors(head_type)?;
        let path = dir.join(TENSORS);
        let failed = |error| TrainError::io(&path, "write it")(io::Error::other(error));
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            let view = TensorView::new(*dtype, shape.clone(), bytes);
            Ok((name.as_str(), view.map_err(failed)?))
        });
        let views = views.collect::<Result<Vec<_>, TrainError>>()?;
        let about = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        replace(&path, |part| {
            safetensors::serialize_to_file(views, Some(about), part).map_err(io::Error::other)
        })?;
        let text = format!("{:#}\n", self.config(checkpoint, head_type));
        replace(&dir.join(CONFIG), |part| fs::write(part, text))?;
        let facts = TargetFacts::from(checkpoint.config());
        HeadCheckpoint::open(dir, &facts, &HeadOptions::default())?;
        Ok(())
    }

    fn tensors(&self, head_type: HeadType) -> Result<Vec<Tensor>> {
        let all = self.floats();
        let stored = all.into_iter().map(|(name, shape, values)| {
            let bytes = head_type.bytes(&values).map_err(|x| {
                TrainError::Unfit(format!(
                    "{name} holds {x}, which is no {}; accepted is f32 or bf16, and finite values",
                    head_type.name()
                ))
            })?;
            Ok((name, head_type.dtype(), shape, bytes))
        });
        let mut stored = stored.collect::<Result<Vec<Tensor>, TrainError>>()?;
        let ids = &self.frozen.ids;
        let vocab = self.data.facts().vocab;
        if ids.len() < vocab {
            let offsets = ids
                .iter()
                .zip(0_i64..)
                .map(|(id, row)| i64::from(*id) - row);
            let offsets = offsets.flat_map(i64::to_le_bytes).collect();
            let mut marks = vec![0; vocab];
            for id in ids {
                marks[*id as usize] = 1;
            }
            stored.push(("d2t".to_owned(), Dtype::I64, vec![ids.len()], offsets));
            stored.push(("t2d".to_owned(), Dtype::BOOL, vec![vocab], marks));
        }
        Ok(stored)
    }

    /// The trained tensors by the names of the paper's code, and the output head if it goes with them.
    fn floats(&self) -> Vec<(String, Vec<usize>, Vec<f32>)> {
        let form = &self.form;
        let (h, q, kv) = (form.hidden, form.q_width(), form.kv_width());
        let (x, mlp) = (form.input(), form.intermediate);
        let weights = |part| self.weights.get(part).view().to_vec();
        let (mut fc, wide) = (weights(Part::Fc), form.shape(Part::Fc).1);
        for row in fc.chunks_mut(wide) {
            for (tap, scale) in row.chunks_mut(h).zip(&self.scales) {
                tap.iter_mut().for_each(|x| *x /= scale);
            }
        }
        let (both, gate_up) = (weights(Part::Kv), weights(Part::GateUp));
        let (k, v) = both.split_at(kv * x);
        let (gate, up) = gate_up.split_at(mlp * h);
        let layer = match form.version {
            Version::Eagle1 => "layers.0",
            Version::Eagle3 => "midlayer",
        };
        let named = |part: &str, shape: [usize; 2], values: Vec<f32>| {
            (format!("{layer}.{part}.weight"), shape.to_vec(), values)
        };
        let norm = |name: String, part| (name, vec![h], weights(part));
        let mut all = vec![
            ("fc.weight".to_owned(), vec![h, wide], fc),
            named("self_attn.q_proj", [q, x], weights(Part::Q)),
            named("self_attn.k_proj", [kv, x], k.to_vec()),
            named("self_attn.v_proj", [kv, x], v.to_vec()),
            named("self_attn.o_proj", [h, q], weights(Part::O)),
            norm(
                format!("{layer}.post_attention_layernorm.weight"),
                Part::PostNorm,
            ),
            named("mlp.gate_proj", [mlp, h], gate.to_vec()),
            named("mlp.up_proj", [mlp, h], up.to_vec()),
            named("mlp.down_proj", [h, mlp], weights(Part::Down)),
        ];
        if form.version == Version::Eagle3 {
            let lm_head = &self.frozen.lm_head;
            all.extend([
                norm(format!("{layer}.input_layernorm.weight"), Part::InputNorm),
                norm(format!("{layer}.hidden_norm.weight"), Part::HiddenNorm),
                norm("norm.weight".to_owned(), Part::Norm),
                (
                    "lm_head.weight".to_owned(),
                    vec![lm_head.rows(), h],
                    lm_head.view().to_vec(),
                ),
            ]);
        }
        all
    }

    fn config(&self, checkpoint: &Checkpoint, head_type: HeadType) -> Value {
        let (form, target) = (&self.form, checkpoint.config());
        let mut config = json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": form.hidden,
            "intermediate_size": form.intermediate,
            "num_attention_heads": form.heads,
            "num_key_value_heads": form.kv_heads,
            "num_hidden_layers": 1,
            "vocab_size": target.vocab,
            "rms_norm_eps": target.eps,
            "max_position_embeddings": target.max_position,
            "rope_theta": target.rope.theta,
            "tie_word_embeddings": false,
            "torch_dtype": head_type.name(),
        });
        if form.version == Version::Eagle1 {
            config["bias"] = json!(false);
            return config;
        }
        config["draft_vocab_size"] = json!(self.frozen.ids.len());
        let taps = &self.data.facts().taps;
        if default_taps(target).ok().as_ref() != Some(taps) {
            config["eagle_aux_hidden_state_layer_ids"] = json!(taps);
        }
        config
    }
}
