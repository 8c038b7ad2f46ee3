//! mistral.rs' own OpenAI server on Eyrie's pipelines.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use axum::{Router, http::header, routing::get};
use mistralrs_core::{AddModelConfig, EngineConfig, MistralRs, MistralRsBuilder};
use mistralrs_server_core::mistralrs_server_router_builder::MistralRsServerRouterBuilder;

use crate::{EyrieLoader, metrics::Metrics};

/// Ending of the model name under which the same weights decode without speculation.
pub const PLAIN: &str = "-plain";

/// The media type of the OpenMetrics text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A running host with the loader's model as `name`, and as `name-plain` without speculation.
///
/// # Errors
/// What the loader refuses; a name that the host has already.
pub async fn start(loader: &EyrieLoader, name: &str) -> Result<Arc<MistralRs>> {
    let pipeline = loader.pipeline(name, true)?;
    let host = MistralRsBuilder::new(pipeline, loader.scheduler(), false, None)
        .with_model_id(name)
        .with_no_prefix_cache(true)
        .build()
        .await;
    add_plain(&host, loader, name).await?;
    Ok(host)
}

/// Adds the loader's model to a running host, under both names.
///
/// # Errors
/// As [`start`].
pub async fn add(host: &MistralRs, loader: &EyrieLoader, name: &str) -> Result<()> {
    add_one(host, loader, name.to_owned(), true).await?;
    add_plain(host, loader, name).await
}

async fn add_plain(host: &MistralRs, loader: &EyrieLoader, name: &str) -> Result<()> {
    add_one(host, loader, format!("{name}{PLAIN}"), false).await
}

async fn add_one(
    host: &MistralRs,
    loader: &EyrieLoader,
    name: String,
    speculate: bool,
) -> Result<()> {
    let pipeline = loader.pipeline(&name, speculate)?;
    let config = AddModelConfig::new(EngineConfig {
        no_prefix_cache: true,
        throughput_logging_enabled: false,
        ..EngineConfig::default()
    });
    let added = host.add_model(name, pipeline, loader.scheduler(), config);
    added.await.map_err(|error| anyhow!(error))
}

/// The server's routes, with `/metrics` for these counters; loaders that serve one host share theirs
/// ([`EyrieLoader::with_metrics`]).
///
/// # Errors
/// If the host's routes cannot be made.
pub async fn router(host: Arc<MistralRs>, metrics: Arc<Metrics>) -> Result<Router> {
    let routes = MistralRsServerRouterBuilder::new().with_mistralrs(host);
    let told = move || async move { ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.text()) };
    Ok(routes.build().await?.route("/metrics", get(told)))
}
