//! mistral.rs as published, with a tiny llama: what its tests need of it.

mod direct;

pub use direct::finish;

use std::{net::SocketAddr, num::NonZero, path::Path, sync::Arc};

use anyhow::{Context, Result};
use candle_core::{DType, Device};
use eyrie_fixtures::{Fixture, tokenizer};
use eyrie_host_client::Client;
use mistralrs_core::{
    DefaultSchedulerMethod, DeviceMapSetting, Loader, MistralRs, MistralRsBuilder,
    NormalLoaderBuilder, NormalLoaderType, NormalSpecificConfig, Pipeline, SchedulerConfig,
    TokenSource,
};
use mistralrs_server_core::mistralrs_server_router_builder::MistralRsServerRouterBuilder;
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::Mutex, task::JoinHandle};

/// A model in memory, not yet in an engine.
pub type Loaded = Arc<Mutex<dyn Pipeline + Send + Sync>>;

/// An engine, and its OpenAI server on a port of its own.
pub struct Host {
    mistralrs: Arc<MistralRs>,
    address: SocketAddr,
    server: JoinHandle<()>,
}

/// Whether finished sequences are kept for the prompts that begin with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixCache {
    /// As mistral.rs does unless it is told not to.
    On,
    /// Each prompt is computed from its first token.
    Off,
}

impl Host {
    /// An engine with the tiny model, and its server.
    ///
    /// # Errors
    /// If the model, the engine or the server does not come up.
    pub async fn start(prefix_cache: PrefixCache) -> Result<Self> {
        let dir = model()?;
        let pipeline = load(loader(dir.path())?.as_ref())?;
        let mistralrs = engine(pipeline, prefix_cache).await;
        let router = MistralRsServerRouterBuilder::new().with_mistralrs(mistralrs.clone());
        let router = router.build().await.context("the router")?;
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("a port")?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            // Serves until it is aborted.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self {
            mistralrs,
            address,
            server,
        })
    }

    /// A client of the server.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn client(&self) -> Result<Client> {
        Ok(Client::new(self.address)?)
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The tiny model in a folder: 60 tokens, as many as its tokenizer has, because under a grammar mistral.rs
/// may sample an id that the tokenizer does not know, and then fails.
///
/// # Errors
/// If it cannot be written.
pub fn model() -> Result<TempDir> {
    let dir = tempfile::tempdir().context("a folder for the model")?;
    let fixture = Fixture {
        vocab: tokenizer::TOKENS,
        eos: Some(vec![tokenizer::EOS]),
        tokenizer: true,
        ..eyrie_fixtures::tt()
    };
    fixture.write_dir(dir.path()).context("the model")?;
    Ok(dir)
}

/// A loader of the model in `dir`.
///
/// # Errors
/// If mistral.rs does not know how to load it.
pub fn loader(dir: &Path) -> Result<Box<dyn Loader>> {
    let id = dir.to_str().context("the folder's name is no text")?;
    NormalLoaderBuilder::new(
        NormalSpecificConfig::default(),
        None,
        None,
        Some(id.to_owned()),
        false,
        None,
    )
    .build(Some(NormalLoaderType::Llama))
}

/// Loads on the CPU, in f32.
///
/// # Errors
/// Those of mistral.rs.
pub fn load(loader: &dyn Loader) -> Result<Loaded> {
    loader.load_model_from_hf(
        None,
        TokenSource::None,
        &DType::F32,
        &Device::Cpu,
        true,
        DeviceMapSetting::dummy(),
        None,
        None,
    )
}

/// An engine for at most 16 sequences at once. On a runtime of several threads it has answered a
/// request when this returns.
pub async fn engine(pipeline: Loaded, prefix_cache: PrefixCache) -> Arc<MistralRs> {
    let scheduler = SchedulerConfig::DefaultScheduler {
        method: DefaultSchedulerMethod::Fixed(NonZero::new(16).unwrap_or(NonZero::<usize>::MIN)),
    };
    MistralRsBuilder::new(pipeline, scheduler, false, None)
        .with_no_prefix_cache(prefix_cache == PrefixCache::Off)
        .build()
        .await
}
