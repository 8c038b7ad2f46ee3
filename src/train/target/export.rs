//! The trained target as every engine loads it.

use std::{collections::HashMap, fs, io, path::Path};

use candle_core::Tensor;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

use super::{
    TargetTrainer,
    net::{EPS, Part, THETA},
    texts::END_ID,
};
use crate::{
    error::Result,
    model::load::Checkpoint,
    train::{HeadType, TrainError, files::replace},
};

impl TargetTrainer {
    /// Writes the checkpoint to the folder `dir`, which is made if need be, and reads it back:
    /// `config.json`, `generation_config.json`, `model.safetensors` in the type `stored`,
    /// `tokenizer.json`.
    ///
    /// # Errors
    /// If the folder cannot be written, or a value has no place in the type; if what was written is not
    /// understood.
    pub fn export(&self, stored: HeadType, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir).map_err(TrainError::io(dir, "make the folder"))?;
        let path = dir.join("model.safetensors");
        let failed = |error| TrainError::io(&path, "write it")(io::Error::other(error));
        let mut tensors = Vec::new();
        for (name, tensor) in self.named()? {
            let values = tensor.flatten_all()?.to_vec1::<f32>()?;
            let bytes = stored.bytes(&values).map_err(|x| {
                TrainError::Unfit(format!(
                    "{name} holds {x}, which is no {}; accepted are finite values",
                    stored.name()
                ))
            })?;
            tensors.push((name, tensor.dims().to_vec(), bytes));
        }
        let views = tensors.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(stored.dtype(), shape.clone(), bytes);
            Ok((name, view.map_err(failed)?))
        });
        let views = views.collect::<Result<Vec<_>, TrainError>>()?;
        let about = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        replace(&path, |part| {
            safetensors::serialize_to_file(views, Some(about), part).map_err(io::Error::other)
        })?;
        let ends = json!({"bos_token_id": END_ID, "eos_token_id": END_ID});
        for (name, text) in [
            ("config.json", format!("{:#}\n", self.config(stored))),
            ("generation_config.json", format!("{ends:#}\n")),
            ("tokenizer.json", format!("{}\n", self.tokenizer)),
        ] {
            replace(&dir.join(name), |part| fs::write(part, text))?;
        }
        Checkpoint::open(dir)?;
        Ok(())
    }

    /// The tensors by the names that llama has for them, matrices `[out, in]`.
    fn named(&self) -> Result<Vec<(String, Tensor)>> {
        let (recipe, net) = (&self.recipe, &self.net);
        let dim = recipe.head_dim();
        let (q, kv, ffn) = (recipe.heads * dim, recipe.kv_heads * dim, recipe.ffn);
        let mut all = vec![
            (
                "model.embed_tokens.weight".to_owned(),
                net.embedding().clone(),
            ),
            ("model.norm.weight".to_owned(), net.last_norm().clone()),
        ];
        for layer in 0..recipe.layers {
            for (name, part, from, count) in [
                ("input_layernorm", Part::InputNorm, 0, 0),
                ("self_attn.q_proj", Part::Qkv, 0, q),
                ("self_attn.k_proj", Part::Qkv, q, kv),
                ("self_attn.v_proj", Part::Qkv, q + kv, kv),
                ("self_attn.o_proj", Part::O, 0, recipe.hidden),
                ("post_attention_layernorm", Part::PostNorm, 0, 0),
                ("mlp.gate_proj", Part::GateUp, 0, ffn),
                ("mlp.up_proj", Part::GateUp, ffn, ffn),
                ("mlp.down_proj", Part::Down, 0, recipe.hidden),
            ] {
                let held = net.part(layer, part);
                let tensor = match part {
                    Part::InputNorm | Part::PostNorm => held.clone(),
                    _ => held.narrow(1, from, count)?.t()?,
                };
                all.push((format!("model.layers.{layer}.{name}.weight"), tensor));
            }
        }
        Ok(all)
    }

    fn config(&self, stored: HeadType) -> Value {
        let recipe = &self.recipe;
        json!({
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": false,
            "bos_token_id": END_ID,
            "eos_token_id": END_ID,
            "hidden_act": "silu",
            "hidden_size": recipe.hidden,
            "intermediate_size": recipe.ffn,
            "max_position_embeddings": recipe.context,
            "mlp_bias": false,
            "model_type": "llama",
            "num_attention_heads": recipe.heads,
            "num_hidden_layers": recipe.layers,
            "num_key_value_heads": recipe.kv_heads,
            "rms_norm_eps": EPS,
            "rope_scaling": null,
            "rope_theta": THETA,
            "tie_word_embeddings": true,
            "torch_dtype": stored.name(),
            "vocab_size": recipe.vocab,
        })
    }
}
