//! Checkpoints with their tokenizers, and the drafter over them.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result, bail};

use super::{
    args::{Device, DrafterKind, Dtype, PickKind},
    embedded,
    progress::Busy,
    say,
    setup::Setup,
};
use crate::{
    TokenId,
    draft::{
        Drafter, FirstOf, ModelDrafter, Ngram, NoDrafter, Pick, Script, Shape,
        eagle::{EagleDrafter, Head, HeadCheckpoint, TargetFacts, load::is_head},
    },
    kernels::Format,
    model::{self, Llama, LoadOptions, Target, TensorLlama, load::Checkpoint},
    text::{Agreement, ChatTemplate, TextError, Tokenizer, Vocabulary},
};

/// A checkpoint whose headers have been read, with its tokenizer and chat template.
#[derive(Debug)]
pub struct Opened {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Its tokenizer, if it has one that is known here.
    pub tokenizer: Option<Tokenizer>,
    /// Its chat template.
    pub chat: Option<ChatTemplate>,
    /// What was left out, not understood, or taken by default.
    pub warnings: Vec<String>,
}

impl Opened {
    /// Opens the model directory or GGUF file `path`, or the embedded model.
    ///
    /// # Errors
    /// A checkpoint, tokenizer or chat template that is there and cannot be understood. A GGUF
    /// tokenizer of an unknown kind only warns: prompts can be given as token ids.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of("", path)
    }

    pub(super) fn of(flag: &str, path: &Path) -> Result<Self> {
        let checkpoint = checkpoint(flag, path)?;
        let about = |text: &dyn std::fmt::Display| format!("{}: {text}", path.display());
        let told = checkpoint.warnings().iter();
        let mut warnings: Vec<String> = told.map(|text| about(text)).collect();
        warnings.extend(embedded::warning(path));
        let (tokenizer, chat) = match checkpoint.metadata() {
            Some(metadata) => {
                let file = || path.display().to_string();
                let words = Vocabulary::from_metadata(metadata).with_context(file)?;
                let words = words.unwrap_or_default();
                let tokenizer = match words.tokenizer() {
                    Ok(tokenizer) => Some(tokenizer),
                    Err(_) if words.tokens.is_empty() => None,
                    Err(error @ (TextError::Model { .. } | TextError::Pre { .. })) => {
                        warnings.push(about(&error));
                        None
                    }
                    Err(error) => return Err(error).with_context(file),
                };
                let chat = words.chat_template();
                (tokenizer, chat.with_context(file)?)
            }
            None => {
                let files = embedded::files(path);
                let tokenizer = Tokenizer::from_dir(files.clone())?;
                (tokenizer, ChatTemplate::from_dir(files)?)
            }
        };
        Ok(Self {
            checkpoint,
            tokenizer,
            chat,
            warnings,
        })
    }

    /// Tokens that end an answer: the checkpoint's, and the one that the chat template puts there.
    #[must_use]
    pub fn eos(&self) -> Vec<TokenId> {
        let mut all = self.checkpoint.eos().to_vec();
        if let (Some(chat), Some(tokenizer)) = (&self.chat, &self.tokenizer) {
            all.extend(
                chat.end_token(tokenizer)
                    .filter(|id| !self.checkpoint.eos().contains(id)),
            );
        }
        all
    }

    /// Number of ids that have a meaning: the tokenizer's, if the logits are wider.
    #[must_use]
    pub fn valid(&self) -> usize {
        let vocab = self.checkpoint.config().vocab;
        self.tokenizer
            .as_ref()
            .map_or(vocab, |tokenizer| tokenizer.valid().min(vocab))
    }

    /// Bytes of keys and values a token.
    pub(super) fn kv_bytes(&self) -> usize {
        let config = self.checkpoint.config();
        config.layers * config.kv_width() * 2 * size_of::<f32>()
    }

    /// Loads the weights for a setup.
    pub(super) fn load(&self, setup: &Setup) -> Result<Arc<dyn Target>> {
        let options = LoadOptions {
            dtype: setup.dtype.into(),
            head_dtype: Some(setup.head_dtype.into()),
            threads: Some(setup.threads),
        };
        self.load_on(setup.device, options)
    }

    /// Loads the weights for a device.
    pub(super) fn load_on(&self, device: Device, options: LoadOptions) -> Result<Arc<dyn Target>> {
        let busy = Busy::start(&format!("loading {}", self.checkpoint.path().display()));
        let mut progress = |done, all| busy.reached(done, all);
        let Device::Cuda(index) = device else {
            let model = Llama::load_with(&self.checkpoint, &options, &mut progress)?;
            return Ok(Arc::new(model));
        };
        let about = || format!("--device {device}");
        let device = candle_core::Device::new_cuda(index).with_context(about)?;
        let model = TensorLlama::load_with(&self.checkpoint, &options, &device, &mut progress);
        Ok(Arc::new(model.with_context(about)?))
    }
}

/// Opens a checkpoint; `flag` is how errors call it.
pub(super) fn checkpoint(flag: &str, path: &Path) -> Result<Checkpoint> {
    exists(flag, path)?;
    let files = embedded::files(path);
    match Checkpoint::open(files.clone()) {
        Err(_) if is_head(files).is_ok_and(|head| head) => {
            let space = if flag.is_empty() { "" } else { " " };
            bail!(
                "{flag}{space}{}: an EAGLE head; a model is accepted",
                path.display()
            )
        }
        opened => Ok(opened?),
    }
}

pub(super) fn exists(flag: &str, path: &Path) -> Result<()> {
    if !embedded::files(path).exists() {
        let space = if flag.is_empty() { "" } else { " " };
        bail!("{flag}{space}{}: no such file or directory", path.display());
    }
    Ok(())
}

/// The models of a run, opened and found to fit each other.
#[derive(Debug)]
pub(super) struct Models {
    pub(super) target: Opened,
    /// The draft model; none also if it is the target itself.
    draft: Option<Opened>,
    script: Option<Script>,
    head: Option<HeadCheckpoint>,
    /// Rows that drafts need in the drafter's cache, beside the tokens of sequences.
    draft_rows: usize,
    /// Tokens of each cache, as the setup has them now.
    pub(super) kv_tokens: usize,
    /// What is to be said of them.
    pub(super) warnings: Vec<String>,
}

impl Models {
    /// Opens what `setup` names and fills in what depends on it.
    pub(super) fn open(setup: &mut Setup) -> Result<Self> {
        let target = Opened::of("--model", &setup.model)?;
        let mut models = Self {
            target,
            draft: None,
            script: None,
            head: None,
            draft_rows: 0,
            kv_tokens: 0,
            warnings: Vec::new(),
        };
        match (setup.drafter, &setup.draft) {
            (DrafterKind::Model, Some(path)) if !same(path, &setup.model) => {
                let draft = Opened::of("--draft", path)?;
                let allow = setup.allow_tokenizer_mismatch;
                let finding = agree(&models.target, &draft, path, allow)?;
                models.warnings.extend(finding);
                models.draft = Some(draft);
            }
            (kind, Some(path)) if kind.has_head() => {
                exists("--draft", path)?;
                let facts = TargetFacts::from(models.target.checkpoint.config());
                let options = (&setup.head).into();
                let head = HeadCheckpoint::open(embedded::files(path), &facts, &options)?;
                models.head = Some(head);
            }
            (DrafterKind::Script, Some(path)) => {
                let about = || format!("--draft {}", path.display());
                let text = std::fs::read_to_string(path).with_context(about)?;
                models.script = Some(Script::from_json(&text).with_context(about)?);
            }
            _ => {}
        }
        let opened = models.draft.iter().chain([&models.target]);
        let mut told: Vec<String> = opened.flat_map(|m| &m.warnings).cloned().collect();
        if let (Some(head), Some(path)) = (&models.head, &setup.draft) {
            let warnings = head.config().warnings.iter();
            told.extend(warnings.map(|warning| format!("{}: {warning}", path.display())));
            told.extend(embedded::warning(path));
        }
        models.warnings.append(&mut told);
        let draft_width = models.draft_width(setup);
        // Drafts of a head live beside its sequences; chains of a model become part of them.
        let beside = setup.tree.is_some() || models.head.is_some();
        models.draft_rows = match (setup.depth, setup.tree) {
            (Some(depth), tree) if beside => {
                let nodes = tree.map_or(depth.into(), |tree| tree.nodes.into());
                let pick = setup.pick.unwrap_or(PickKind::Coupled).into();
                let topk = topk(setup);
                Shape { pick, topk }.rows(depth.into(), nodes) * setup.max_batch
            }
            _ => 0,
        };
        let context = models.target.checkpoint.config().max_position;
        let width = models.target.kv_bytes() + draft_width;
        models.kv_tokens = setup.fit(context, width, models.draft_rows * draft_width)?;
        Ok(models)
    }

    /// Bytes of keys and values a token in the drafter's cache.
    fn draft_width(&self, setup: &Setup) -> usize {
        match (&self.head, setup.drafter) {
            (Some(head), _) => {
                let config = head.config();
                config.layers * config.kv_width() * 2 * size_of::<f32>()
            }
            (None, DrafterKind::Model) => self.draft.as_ref().unwrap_or(&self.target).kv_bytes(),
            (None, _) => 0,
        }
    }

    /// Says what is to be said of them.
    pub(super) fn warn(&self) {
        for warning in &self.warnings {
            say("warning", warning);
        }
    }

    /// Notes what has to be measured of the target, which is loaded for it; nothing on the CPU.
    pub(super) fn measure(&self, setup: &mut Setup) -> Result<()> {
        if setup.device != Device::Cpu {
            let target = self.target.load(setup)?;
            setup.measured(target.row_invariant());
        }
        Ok(())
    }

    /// Loads the weights: the target, and the draft model or head beside it.
    pub(super) fn load(&self, setup: &Setup) -> Result<Loaded> {
        let target = self.target.load(setup)?;
        let guesser = self.guesser(setup, &target)?;
        Ok(self.with(setup, target, guesser))
    }

    /// Loads what guesses for a target that is loaded.
    pub(super) fn guesser(&self, setup: &Setup, target: &Arc<dyn Target>) -> Result<Guesser> {
        Ok(match setup.drafter {
            DrafterKind::None => Guesser::None,
            DrafterKind::Ngram => Guesser::Ngram,
            DrafterKind::Script => Guesser::Script(self.script.clone().unwrap_or_default()),
            DrafterKind::Model => Guesser::Model(match &self.draft {
                Some(draft) => draft.load(setup)?,
                None => Arc::clone(target),
            }),
            kind @ (DrafterKind::Eagle | DrafterKind::NgramEagle) => {
                let head = self.head.as_ref().context("the head was not opened")?;
                let options = LoadOptions {
                    threads: Some(setup.threads),
                    ..LoadOptions::default()
                };
                let head = Head::load(head, Arc::clone(target), &options)?;
                match kind {
                    DrafterKind::NgramEagle => Guesser::NgramHead(Arc::new(head)),
                    _ => Guesser::Head(Arc::new(head)),
                }
            }
        })
    }

    /// A loaded target and guesser, with the caches and trees of `setup`.
    pub(super) fn with(&self, setup: &Setup, target: Arc<dyn Target>, guesser: Guesser) -> Loaded {
        Loaded {
            target,
            guesser,
            kv_tokens: self.kv_tokens + self.draft_rows,
            topk: topk(setup),
            chunk: setup.prefill_chunk,
        }
    }
}

/// A target, and what its drafters are made of.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) target: Arc<dyn Target>,
    guesser: Guesser,
    /// Tokens of a drafter's cache.
    kv_tokens: usize,
    topk: usize,
    chunk: usize,
}

/// What guesses, loaded. Clones share the weights.
#[derive(Clone, Debug)]
pub(super) enum Guesser {
    None,
    Ngram,
    Script(Script),
    Model(Arc<dyn Target>),
    Head(Arc<Head>),
    NgramHead(Arc<Head>),
}

impl Loaded {
    /// A drafter over the target or beside it.
    pub(super) fn drafter(&self, pick: Pick) -> Box<dyn Drafter> {
        let (slots, topk) = (self.kv_tokens, self.topk);
        let eagle = |head: &Arc<Head>| -> Box<dyn Drafter> {
            let shape = Shape { pick, topk };
            Box::new(EagleDrafter::new(Arc::clone(head), shape, slots))
        };
        match &self.guesser {
            Guesser::None => Box::new(NoDrafter),
            Guesser::Ngram => Box::new(Ngram),
            Guesser::Script(script) => Box::new(script.clone()),
            Guesser::Model(model) => {
                let drafter = ModelDrafter::new(Arc::clone(model), pick, slots, self.chunk);
                Box::new(drafter.branching(topk))
            }
            Guesser::Head(head) => eagle(head),
            Guesser::NgramHead(head) => Box::new(FirstOf::new(Box::new(Ngram), eagle(head))),
        }
    }
}

/// Children that a drafter looks at under a node.
fn topk(setup: &Setup) -> usize {
    setup.tree.map_or(1, |tree| tree.topk.into())
}

/// Whether two paths lead to one file or directory.
fn same(a: &Path, b: &Path) -> bool {
    if a == b {
        return true;
    }
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// Refuses a draft model whose token ids mean something else; else what is to be said of a difference.
fn agree(target: &Opened, draft: &Opened, path: &Path, allow: bool) -> Result<Option<String>> {
    let (fits, finding) = match (&target.tokenizer, &draft.tokenizer) {
        (None, None) => return Ok(None),
        (Some(_), None) => (false, "has no tokenizer, and the target has one".to_owned()),
        (None, Some(_)) => (false, "has a tokenizer, and the target has none".to_owned()),
        (Some(ours), Some(theirs)) => {
            let differences = ours.differences(theirs);
            if differences.agreement == Agreement::Same {
                return Ok(None);
            }
            let tail = matches!(differences.agreement, Agreement::Tail { .. });
            (tail, format!("{differences} (target against draft model)"))
        }
    };
    let finding = format!("--draft {}: {finding}", path.display());
    if !fits && !allow {
        bail!("{finding}; --allow-tokenizer-mismatch uses it all the same");
    }
    Ok(Some(finding))
}

impl From<Dtype> for model::Dtype {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::AsStored => Self::AsStored,
            Dtype::F32 => Self::To(Format::F32),
            Dtype::Bf16 => Self::To(Format::BF16),
            Dtype::F16 => Self::To(Format::F16),
            Dtype::Q8_0 => Self::To(Format::Q8_0),
            Dtype::Q4_0 => Self::To(Format::Q4_0),
            Dtype::Q4_1 => Self::To(Format::Q4_1),
            Dtype::Q4K => Self::To(Format::Q4K),
            Dtype::Q6K => Self::To(Format::Q6K),
        }
    }
}

impl From<PickKind> for Pick {
    fn from(pick: PickKind) -> Self {
        match pick {
            PickKind::Coupled => Self::Coupled,
            PickKind::Greedy => Self::Greedy,
            PickKind::Drawn => Self::Drawn,
        }
    }
}
