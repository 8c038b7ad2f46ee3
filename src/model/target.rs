//! The model whose law is reproduced.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

use super::{
    attention::SelfAttention,
    block::{Block, Shape},
    config::Config,
    decoder::{Decoder, Forward},
    dtype::Dtype,
    linear::Linear,
    load::Checkpoint,
    mlp::Mlp,
    rows::Rows,
};
use crate::{
    Matrix, TokenId,
    cache::{KvCache, Txn},
    error::{ErrorKind, Result},
    kernels::Threads,
};

/// A model that the engine decodes with.
///
/// The bits of a row's logits and taps depend on the row's own path alone: not on the other rows of
/// the pass, on where the pass was cut, on slots, or on threads. A target that does not have this
/// [says so](Self::row_invariant).
pub trait Target: Send + Sync + Debug {
    /// Width of the logits; tokens are below it.
    fn vocab(&self) -> usize;

    /// Positions that exist; rows at or beyond it are refused.
    fn context(&self) -> usize;

    /// Number of layers: taps are 0 to this.
    fn layers(&self) -> usize;

    /// Width of a tap.
    fn hidden(&self) -> usize;

    /// A cache of `slots` tokens for this model.
    fn new_cache(&self, slots: usize) -> KvCache;

    /// Whether a row's bits depend on its own path alone. If not, what is emitted has the law of
    /// this target, and the tokens of a seed depend on which rows were fed together.
    fn row_invariant(&self) -> bool {
        true
    }

    /// Embeddings of `tokens`, `[tokens, hidden]`: tap 0. Tokens must be below
    /// [`vocab`](Self::vocab).
    fn embed(&self, tokens: &[TokenId]) -> Matrix;

    /// The final norm of rows of the last tap, in place.
    fn final_norm(&self, x: &mut Matrix);

    /// Logits `[rows, vocab]` of rows that the final norm was applied to, as for the target's own.
    fn head(&self, normed: &Matrix) -> Matrix;

    /// Feeds `rows`, whose keys and values go to the slots of `txn`. Tap `k` is the residual stream
    /// entering layer `k`, un-normed: 0 the embeddings, [`layers`](Self::layers) after the last.
    ///
    /// # Errors
    /// If a token, position or tap does not exist, or the rows are not those of the transaction.
    /// Nothing is committed either way.
    fn forward(&self, rows: &Rows, txn: &mut Txn<'_>, taps: &[usize]) -> Result<Forward>;
}

/// How a model is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Type of all matrices.
    pub dtype: Dtype,
    /// Type of `lm_head`, if not `dtype`.
    pub head_dtype: Option<Dtype>,
    /// Threads of its own; `None` shares rayon's pool.
    pub threads: Option<usize>,
}

impl LoadOptions {
    /// The threads that are asked for.
    pub(crate) fn pool(&self) -> Result<Threads> {
        let refused = |accepted: String| ErrorKind::Setting {
            name: "threads",
            value: self.threads.unwrap_or_default().to_string(),
            accepted,
        };
        if self.threads == Some(0) {
            return Err(refused("accepted are 1 or more".to_owned()).into());
        }
        Ok(Threads::new(self.threads).map_err(|error| refused(error.to_string()))?)
    }
}

/// A llama decoder on the CPU: weights as stored or converted, everything else in `f32`.
#[derive(Debug)]
pub struct Llama {
    pub(super) decoder: Decoder,
    threads: Threads,
}

impl Llama {
    /// Loads the network of `checkpoint`.
    ///
    /// # Errors
    /// Naming the tensor that cannot be read or converted.
    pub fn load(checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Self> {
        Self::load_with(checkpoint, options, &mut |_, _| {})
    }

    /// As [`load`](Self::load); `progress` is called with the number of tensors loaded, and of all.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(
        checkpoint: &Checkpoint,
        options: &LoadOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let threads = options.pool()?;
        let mut reader = Reader {
            checkpoint,
            dtype: options.dtype,
            used: BTreeSet::new(),
            all: checkpoint.names().count(),
            progress,
        };
        let decoder = reader.decoder(options.head_dtype.unwrap_or(options.dtype))?;
        checkpoint.finish_check(reader.used.iter().map(String::as_str))?;
        Ok(Self { decoder, threads })
    }

    /// What was loaded, in a line.
    #[must_use]
    pub fn describe(&self) -> String {
        let formats = self.decoder.formats();
        let formats = formats.iter().map(|(format, (count, bytes))| {
            format!(
                "{count} x {format} ({}.{} MB)",
                bytes / 1_000_000,
                bytes / 100_000 % 10
            )
        });
        format!(
            "llama, {} layers of {}, {} tokens, matrices {}",
            self.layers(),
            self.hidden(),
            self.vocab(),
            formats.collect::<Vec<_>>().join(", ")
        )
    }
}

impl Target for Llama {
    fn vocab(&self) -> usize {
        self.decoder.vocab
    }

    fn context(&self) -> usize {
        self.decoder.context
    }

    fn layers(&self) -> usize {
        self.decoder.layers.len()
    }

    fn hidden(&self) -> usize {
        self.decoder.shape.hidden
    }

    fn new_cache(&self, slots: usize) -> KvCache {
        KvCache::new(self.layers(), self.decoder.shape.kv_width(), slots)
    }

    fn embed(&self, tokens: &[TokenId]) -> Matrix {
        self.decoder.embed(tokens)
    }

    fn final_norm(&self, x: &mut Matrix) {
        self.decoder.final_norm(x);
    }

    fn head(&self, normed: &Matrix) -> Matrix {
        let work = normed.rows() * self.hidden() * self.vocab();
        self.threads
            .run(work, |exec| self.decoder.head(normed, exec))
    }

    fn forward(&self, rows: &Rows, txn: &mut Txn<'_>, taps: &[usize]) -> Result<Forward> {
        self.decoder.limits().check(rows, txn, taps)?;
        let work = rows.len() * self.decoder.work();
        self.threads
            .run(work, |exec| self.decoder.forward(rows, txn, taps, exec))
    }
}

/// Reads the tensors of a network and remembers which.
struct Reader<'a> {
    checkpoint: &'a Checkpoint,
    dtype: Dtype,
    used: BTreeSet<String>,
    all: usize,
    progress: &'a mut dyn FnMut(usize, usize),
}

impl Reader<'_> {
    fn decoder(&mut self, head: Dtype) -> Result<Decoder> {
        let config = self.checkpoint.config().clone();
        let embed = "model.embed_tokens.weight";
        let embed_tokens = Arc::new(self.matrix(embed, self.dtype)?);
        let layers = (0..config.layers).map(|i| self.block(i));
        let layers = layers.collect::<Result<_>>()?;
        let norm = self.vector("model.norm.weight")?;
        let lm_head = match (config.tied, head == self.dtype) {
            (true, true) => Arc::clone(&embed_tokens),
            (true, false) => Arc::new(self.matrix(embed, head)?),
            (false, _) => Arc::new(self.matrix("lm_head.weight", head)?),
        };
        Ok(Decoder {
            shape: shape(&config),
            vocab: config.vocab,
            context: config.max_position,
            embed_tokens,
            layers,
            norm,
            lm_head,
        })
    }

    fn block(&mut self, layer: usize) -> Result<Block> {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        Ok(Block {
            input_layernorm: Some(self.vector(&name("input_layernorm"))?),
            self_attn: SelfAttention {
                q_proj: self.matrix(&name("self_attn.q_proj"), self.dtype)?,
                k_proj: self.matrix(&name("self_attn.k_proj"), self.dtype)?,
                v_proj: self.matrix(&name("self_attn.v_proj"), self.dtype)?,
                o_proj: self.matrix(&name("self_attn.o_proj"), self.dtype)?,
                qk_norm: None,
                window: None,
            },
            post_attention_layernorm: self.vector(&name("post_attention_layernorm"))?,
            mlp: Mlp {
                gate_proj: self.matrix(&name("mlp.gate_proj"), self.dtype)?,
                up_proj: self.matrix(&name("mlp.up_proj"), self.dtype)?,
                down_proj: self.matrix(&name("mlp.down_proj"), self.dtype)?,
            },
        })
    }

    fn matrix(&mut self, name: &str, dtype: Dtype) -> Result<Linear> {
        let matrix = Linear::from_stored(self.checkpoint.stored(name)?, dtype)?;
        self.note(name);
        Ok(matrix)
    }

    fn vector(&mut self, name: &str) -> Result<Vec<f32>> {
        let stored = self.checkpoint.stored(name)?;
        let floats = stored.floats();
        let floats = floats.map_err(|problem| problem.in_file(self.checkpoint.path()))?;
        self.note(name);
        Ok(floats)
    }

    fn note(&mut self, name: &str) {
        self.used.insert(name.to_owned());
        (self.progress)(self.used.len(), self.all);
    }
}

fn shape(config: &Config) -> Shape {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "computed in f32, as trained"
    )]
    let eps = config.eps as f32;
    Shape {
        hidden: config.hidden,
        intermediate: config.intermediate,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        eps,
        rope: config.rope.rotary(config.head_dim),
    }
}
