//! From flags to pipelines.

use std::{
    ffi::OsString,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Device};
use clap::{Args, Parser};
use eyrie::{
    cli::{self, Prepared, RuleKind, SetupArgs, prepare},
    schedule::Engine,
};
use mistralrs_core::{
    DefaultSchedulerMethod, DeviceMapSetting, IsqType, Loader, Modalities, ModelKind, ModelPaths,
    PagedAttentionConfig, Pipeline, SchedulerConfig, SupportedModality, TokenSource, TryIntoDType,
    speculative_host::{
        ChatTemplate, EitherCache, GeneralMetadata, KvCacheLayout, ModelConfigMetadata,
        NormalCache, build_llg_factory,
    },
};
use tokio::sync::Mutex;

use crate::{
    metrics::Metrics,
    pipeline::{EyriePipeline, Parts},
    prompts,
    runner::{Held, Shared},
};

/// What to load and how to guess: the flags of `eyrie generate`.
#[derive(Debug, Args)]
pub struct Options {
    /// Models and engine.
    #[command(flatten)]
    pub setup: SetupArgs,
    /// How drafts are accepted
    #[arg(long, value_enum, default_value_t = RuleKind::Match)]
    pub rule: RuleKind,
    /// A debugging aid: the same random numbers for every request; without it each gets its own seed
    /// from the system, and reports it
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    options: Options,
}

impl Options {
    /// Options from flags, as `["--model", "PATH", "--drafter", "ngram"]`.
    ///
    /// # Errors
    /// If a flag is not known, or its value is out of range.
    pub fn parse(flags: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self> {
        Ok(Line::try_parse_from(flags)?.options)
    }
}

/// Loads a target and a drafter for mistral.rs.
///
/// As the host's [`Loader`] it gives the pipeline that speculates. [`EyrieLoader::pipeline`] gives
/// more of them over the same weights and the same engine, under other names, with or without
/// speculation.
#[derive(Debug)]
pub struct EyrieLoader {
    options: Options,
    loaded: OnceLock<Arc<Loaded>>,
    metrics: Arc<Metrics>,
}

struct Loaded {
    runner: Shared,
    metadata: Arc<GeneralMetadata>,
    tokenizer: Arc<tokenizers::Tokenizer>,
    template: Arc<ChatTemplate>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}

impl EyrieLoader {
    /// A loader that has loaded nothing.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            loaded: OnceLock::new(),
            metrics: Arc::default(),
        }
    }

    /// The loader, counting where another one counts; before it has loaded anything.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// What its engine holds now; nothing before it has loaded anything.
    #[must_use]
    pub fn held(&self) -> Held {
        let loaded = self.loaded.get();
        loaded.map_or_else(Held::default, |loaded| loaded.runner.lock().held())
    }

    /// What its pipelines do, for `/metrics`.
    #[must_use]
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// The host's scheduler for such pipelines: all sequences in one step, at most `max_batch` at once.
    #[must_use]
    pub fn scheduler(&self) -> SchedulerConfig {
        let most =
            NonZeroUsize::new(self.options.setup.max_batch.into()).unwrap_or(NonZeroUsize::MIN);
        SchedulerConfig::DefaultScheduler {
            method: DefaultSchedulerMethod::Ragged(most),
        }
    }

    /// A pipeline called `name`; the first loads the models.
    ///
    /// # Errors
    /// What `eyrie generate` refuses of its flags and files; a model without a tokenizer; a name that
    /// cannot be a label of `/metrics`: printable ASCII without `"` and `\`.
    pub fn pipeline(
        &self,
        name: impl Into<String>,
        speculate: bool,
    ) -> Result<Arc<Mutex<EyriePipeline>>> {
        let name = name.into();
        let printable = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        ensure!(
            !name.is_empty() && name.bytes().all(printable),
            "model name {name:?} (--name): printable ASCII without quotes and backslashes is accepted"
        );
        let loaded = self.load()?;
        Ok(Arc::new(Mutex::new(EyriePipeline::new(Parts {
            name,
            speculate,
            seed: self.options.seed,
            runner: loaded.runner.clone(),
            metrics: self.metrics(),
            metadata: Arc::clone(&loaded.metadata),
            tokenizer: Arc::clone(&loaded.tokenizer),
            template: Arc::clone(&loaded.template),
            cache: EitherCache::Normal(NormalCache::new(0, 0)),
            device: Device::Cpu,
        }))))
    }

    fn load(&self) -> Result<Arc<Loaded>> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(Arc::clone(loaded));
        }
        let loaded = Arc::new(self.load_now()?);
        Ok(Arc::clone(self.loaded.get_or_init(|| loaded)))
    }

    fn load_now(&self) -> Result<Loaded> {
        let model = &self.options.setup.model;
        let prepared = prepare(&self.options.setup, self.options.rule)?;
        for warning in &prepared.warnings {
            tracing::warn!("{warning}");
        }
        let Prepared {
            mut parts,
            options,
            resolver,
            ..
        } = prepared;
        let about = || format!("--model {}", model.display());
        let text = parts.text.take();
        let text = text
            .context("no tokenizer; mistral.rs needs one")
            .with_context(about)?;
        let template = prompts::template(model, resolver.chat.as_ref())?;
        let factory = build_llg_factory(text.hf().clone()).with_context(about)?;
        let context = parts.target.context();
        let metadata = GeneralMetadata {
            max_seq_len: context,
            llg_factory: Some(factory),
            no_kv_cache: false,
            no_prefix_cache: true,
            num_hidden_layers: 1,
            eos_tok: parts.eos.clone(),
            kind: ModelKind::Normal,
            is_xlora: false,
            activation_dtype: DType::F32,
            sliding_window: None,
            cache_config: None,
            cache_engine: None,
            // No layers: the host allocates no keys and values.
            model_metadata: Some(Arc::new(ModelConfigMetadata {
                max_seq_len: context,
                num_layers: 0,
                hidden_size: parts.target.hidden(),
                num_kv_heads: 1,
                num_attn_heads: 1,
                sliding_window: None,
                k_head_dim: 1,
                v_head_dim: 1,
                kv_cache_layout: KvCacheLayout::Standard,
            })),
            modalities: Modalities {
                input: vec![SupportedModality::Text],
                output: vec![SupportedModality::Text],
            },
        };
        Ok(Loaded {
            runner: Shared::new(Engine::new(parts, options)?, self.metrics()),
            metadata: Arc::new(metadata),
            tokenizer: Arc::new(text.hf().clone()),
            template: Arc::new(template),
        })
    }

    /// Refuses what the host asks of a loader and this one cannot do.
    fn check(
        &self,
        device: &Device,
        quantize: Option<IsqType>,
        paged: Option<&PagedAttentionConfig>,
    ) -> Result<()> {
        if let Some(kind) = quantize {
            bail!("in_situ_quant {kind:?}: Eyrie converts with --dtype; none is accepted");
        }
        ensure!(
            paged.is_none(),
            "paged_attn_config: Eyrie holds keys and values itself; none is accepted"
        );
        let own = self.options.setup.device;
        let same = match own {
            cli::Device::Cpu => device.is_cpu(),
            cli::Device::Cuda(_) => device.is_cuda(),
        };
        ensure!(
            same,
            "device {:?}: the loader's is {own} (--device)",
            device.location()
        );
        Ok(())
    }
}

/// The weights and their type are those of the [`Options`]; `dtype` and the device map, which the host
/// chooses for its own models, are not looked at.
impl Loader for EyrieLoader {
    fn load_model_from_hf(
        &self,
        revision: Option<String>,
        _: TokenSource,
        _: &dyn TryIntoDType,
        device: &Device,
        _: bool,
        _: DeviceMapSetting,
        in_situ_quant: Option<IsqType>,
        paged_attn_config: Option<PagedAttentionConfig>,
    ) -> Result<Arc<Mutex<dyn Pipeline + Send + Sync>>> {
        if let Some(revision) = revision {
            bail!("revision {revision}: Eyrie loads files; none is accepted");
        }
        self.check(device, in_situ_quant, paged_attn_config.as_ref())?;
        Ok(self.pipeline(self.get_id(), true)?)
    }

    fn load_model_from_path(
        &self,
        paths: &Box<dyn ModelPaths>,
        _: &dyn TryIntoDType,
        device: &Device,
        _: bool,
        _: DeviceMapSetting,
        in_situ_quant: Option<IsqType>,
        paged_attn_config: Option<PagedAttentionConfig>,
    ) -> Result<Arc<Mutex<dyn Pipeline + Send + Sync>>> {
        self.check(device, in_situ_quant, paged_attn_config.as_ref())?;
        let own = &self.options.setup.model;
        let mut files = paths.get_weight_filenames().iter().map(PathBuf::as_path);
        let ours = |file: &Path| file == own || file.parent() == Some(own);
        if let Some(file) = files.find(|file| !ours(file)) {
            bail!(
                "{}: the loader's model is {}",
                file.display(),
                own.display()
            );
        }
        Ok(self.pipeline(self.get_id(), true)?)
    }

    /// The name of the model's file or folder.
    fn get_id(&self) -> String {
        let model = &self.options.setup.model;
        let name = model
            .file_stem()
            .filter(|_| model.is_file())
            .or_else(|| model.file_name());
        name.map_or_else(
            || model.display().to_string(),
            |name| name.to_string_lossy().into_owned(),
        )
    }

    fn get_kind(&self) -> ModelKind {
        ModelKind::Normal
    }
}
