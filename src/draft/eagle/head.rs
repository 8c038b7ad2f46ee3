//! A loaded head: the network of one of the versions between embedding and output head, each its own
//! or the target's.

use std::{fmt::Debug, sync::Arc};

use super::{
    config::{Feature, HeadConfig, Version, VocabMap},
    eagle1::Eagle1,
    eagle3::Eagle3,
    load::HeadCheckpoint,
    parts::{Parts, TensorSource, eps},
};
use crate::{
    Matrix, TokenId,
    cache::{KvCache, Txn},
    error::{ErrorKind, Result},
    kernels::{Exec, Threads},
    model::{Limits, Linear, LoadOptions, Pass, Plan, Rows, Shape, Target},
    sample::Chain,
};

/// What the versions differ in. Matrices are `[rows, hidden]` unless stated.
pub(super) trait Network: Debug + Send + Sync {
    /// Features of tokens from what the target showed of them: `[rows, taps * target_hidden]`, or
    /// the final feature.
    fn fuse(&self, shown: Matrix, exec: Exec) -> Matrix;

    /// The outputs of rows with these embeddings and features.
    fn forward(&self, embedded: Matrix, h: &Matrix, txn: &mut Txn<'_>, pass: &Pass<'_>) -> Matrix;

    /// What the output head reads of outputs.
    fn before_head(&self, o: &Matrix) -> Matrix;

    /// Outputs as features of the rows that follow on them.
    fn fed_back(&self, o: Matrix) -> Matrix;
}

/// An EAGLE head over its target.
#[derive(Debug)]
pub struct Head {
    config: HeadConfig,
    target: Arc<dyn Target>,
    taps: Vec<usize>,
    shape: Shape,
    network: Box<dyn Network>,
    embed_tokens: Option<Linear>,
    lm_head: Option<Linear>,
    threads: Threads,
}

impl Head {
    /// The head of `checkpoint` for `target`. Without further wishes in `options` its matrices stay as
    /// they are stored.
    ///
    /// # Errors
    /// As [`Head::new`]; and if the head has no use for a tensor.
    pub fn load(
        checkpoint: &HeadCheckpoint,
        target: Arc<dyn Target>,
        options: &LoadOptions,
    ) -> Result<Self> {
        let mut used = Vec::new();
        let mut source = |name: &str| {
            used.push(name.to_owned());
            checkpoint.stored(name)
        };
        let config = checkpoint.config().clone();
        let head = Self::new(config, &mut source, target, options)?;
        checkpoint.finish_check(used.iter().map(String::as_str))?;
        Ok(head)
    }

    /// The head `config` for `target`, with the tensors that `source` gives for the names of
    /// [`HeadConfig::tensors`].
    ///
    /// # Errors
    /// If the head was not made for such a target, or naming a tensor that cannot be used.
    pub fn new(
        config: HeadConfig,
        source: &mut TensorSource<'_>,
        target: Arc<dyn Target>,
        options: &LoadOptions,
    ) -> Result<Self> {
        fits(&config, &*target)?;
        let taps = match &config.feature {
            Feature::Taps(taps) => taps.clone(),
            Feature::Final => vec![target.layers()],
        };
        let threads = options.pool()?;
        let mut parts = Parts::new(&config, source, options.dtype);
        let embed_tokens = (config.own_embedding)
            .then(|| parts.matrix("embed_tokens.weight", options.dtype))
            .transpose()?;
        let network: Box<dyn Network> = match config.version {
            Version::Eagle1 => Box::new(Eagle1::read(&mut parts)?),
            Version::Eagle3 => Box::new(Eagle3::read(&mut parts)?),
        };
        let head_dtype = options.head_dtype.unwrap_or(options.dtype);
        let lm_head = (config.own_head)
            .then(|| parts.matrix("lm_head.weight", head_dtype))
            .transpose()?;
        Ok(Self {
            shape: shape(&config),
            config,
            target,
            taps,
            network,
            embed_tokens,
            lm_head,
            threads,
        })
    }

    /// What it computes.
    #[must_use]
    pub fn config(&self) -> &HeadConfig {
        &self.config
    }

    /// The target's streams that it is to be shown; of [`Feature::Final`], the last.
    #[must_use]
    pub fn taps(&self) -> &[usize] {
        &self.taps
    }

    /// Width of what it is shown of a token: its taps, side by side.
    #[must_use]
    pub fn shown_width(&self) -> usize {
        self.taps.len() * self.config.target_hidden
    }

    /// A cache of `slots` rows.
    #[must_use]
    pub fn new_cache(&self, slots: usize) -> KvCache {
        KvCache::new(self.config.layers, self.config.kv_width(), slots)
    }

    /// The request's processing of logits, for its own vocabulary.
    pub(super) fn chain(&self, chain: &Chain) -> Chain {
        match &self.config.vocab_map {
            VocabMap::Identity => chain.narrowed(self.config.draft_vocab),
            VocabMap::Reduced(ids) => chain.mapped(Arc::clone(ids)),
        }
    }

    /// Features of tokens, `[rows, hidden]`, from the taps that the target showed of them, `[rows,
    /// taps * target_hidden]`.
    #[must_use]
    pub fn fuse(&self, mut taps: Matrix) -> Matrix {
        if self.config.feature == Feature::Final {
            self.target.final_norm(&mut taps);
        }
        let work = taps.rows() * taps.cols() * self.config.hidden;
        let network = &self.network;
        self.threads.run(work, |exec| network.fuse(taps, exec))
    }

    /// The outputs of `rows`, whose features are `h`, both `[rows, hidden]`; keys and values go to the
    /// slots of `txn`. Row i of a sequence has token i + 1 and the feature of token i.
    ///
    /// # Errors
    /// If a token or position does not exist, or the transaction is another's: its rows, or its cache.
    pub fn forward(&self, rows: &Rows, h: &Matrix, txn: &mut Txn<'_>) -> Result<Matrix> {
        let limits = Limits {
            vocab: self.config.vocab,
            layers: self.config.layers,
            width: self.config.kv_width(),
            device: None,
        };
        limits.check(rows, txn, &[])?;
        let embedded = self.embed(rows.tokens());
        let plan = Plan::new(rows, txn, &self.shape.rope, self.config.max_position)?;
        let keys = plan.keys();
        Ok(self.threads.run(rows.len() * self.work(), |exec| {
            let pass = Pass {
                shape: &self.shape,
                plan: &plan,
                keys: &keys,
                exec,
            };
            self.network.forward(embedded, h, txn, &pass)
        }))
    }

    /// Logits of outputs, `[rows, draft_vocab]`.
    #[must_use]
    pub fn logits(&self, o: &Matrix) -> Matrix {
        let normed = self.network.before_head(o);
        let Some(lm_head) = &self.lm_head else {
            return self.target.head(&normed);
        };
        let mut logits = Matrix::zeros(o.rows(), self.config.draft_vocab);
        let work = o.rows() * o.cols() * self.config.draft_vocab;
        self.threads.run(work, |exec| {
            lm_head.apply(normed.as_slice(), logits.as_mut_slice(), exec);
        });
        logits
    }

    /// Outputs as features of the rows that follow on them.
    #[must_use]
    pub fn fed_back(&self, o: Matrix) -> Matrix {
        self.network.fed_back(o)
    }

    fn embed(&self, tokens: &[TokenId]) -> Matrix {
        let Some(own) = &self.embed_tokens else {
            return self.target.embed(tokens);
        };
        let mut embedded = Matrix::zeros(tokens.len(), self.config.hidden);
        for (i, token) in tokens.iter().enumerate() {
            own.row(*token as usize, embedded.row_mut(i));
        }
        embedded
    }

    /// Multiplications of a row, attention aside.
    fn work(&self) -> usize {
        let layers = 0..self.config.layers;
        layers
            .map(|layer| self.shape.work(self.config.attention_input(layer)))
            .sum()
    }
}

/// Refuses a target that the head was not made for.
fn fits(config: &HeadConfig, target: &dyn Target) -> Result<()> {
    let fail = |what: String| Err(ErrorKind::Draft(format!("head: {what}")).into());
    let (vocab, hidden, layers) = (target.vocab(), target.hidden(), target.layers());
    if config.vocab != vocab {
        let found = config.vocab;
        return fail(format!(
            "a vocabulary of {found} tokens, accepted are the target's {vocab}"
        ));
    }
    if config.target_hidden != hidden {
        let found = config.target_hidden;
        return fail(format!(
            "made for streams of {found} values, accepted are the target's {hidden}"
        ));
    }
    if let Some(tap) = config.feature.taps().iter().find(|tap| **tap > layers) {
        return fail(format!(
            "tap {tap}, accepted are 0 to the target's {layers} layers"
        ));
    }
    let own = config.hidden;
    let shared = [
        ("embedding", !config.own_embedding),
        ("output head", !config.own_head),
        ("feature", !config.fc || config.version == Version::Eagle1),
    ];
    for (what, from_target) in shared {
        if from_target && own != hidden {
            return fail(format!(
                "the target's {what} is {hidden} wide, accepted is the head's own width {own}"
            ));
        }
    }
    if !config.own_head && config.draft_vocab != vocab {
        let found = config.draft_vocab;
        return fail(format!(
            "{found} rows of logits, accepted are the {vocab} of the target's output head"
        ));
    }
    Ok(())
}

fn shape(config: &HeadConfig) -> Shape {
    Shape {
        hidden: config.hidden,
        intermediate: config.intermediate,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        eps: eps(config),
        rope: config.rope.rotary(config.head_dim),
    }
}

/// `[rows, a + b]`.
pub(super) fn side_by_side(a: &Matrix, b: &Matrix) -> Matrix {
    let rows = (0..a.rows()).flat_map(|row| a.row(row).iter().chain(b.row(row)));
    Matrix::new(a.cols() + b.cols(), rows.copied().collect())
}
