//! mistral.rs' own OpenAI server on Eyrie's pipelines.

use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderValue, Method, header},
    middleware,
    routing::{get, post},
};
use mistralrs_core::{AddModelConfig, EngineConfig, MistralRs, MistralRsBuilder};
use mistralrs_server_core::{
    completions::{self, CompletionResponder},
    handler_core::{create_response_channel, send_request_with_model},
    mistralrs_server_router_builder::MistralRsServerRouterBuilder,
    openai::CompletionRequest,
};
use tower_http::cors::CorsLayer;

use crate::{
    EyrieLoader,
    gate::{MOST_BYTES, gate},
    metrics::Metrics,
};

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
/// ([`EyrieLoader::with_metrics`]). Of the host's own only those that decode text, list models or tell
/// the health are served. Pages of `origins` (`https://example.org`) may read the answers.
///
/// # Errors
/// If an origin is none; if the host's routes cannot be made.
pub async fn router(
    host: Arc<MistralRs>,
    metrics: Arc<Metrics>,
    origins: &[String],
) -> Result<Router> {
    let cors = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers([header::CONTENT_TYPE, header::AUTHORIZATION])
        .allow_origin(origins.iter().map(origin).collect::<Result<Vec<_>>>()?);
    let told = move || async move { ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.text()) };
    let builder = MistralRsServerRouterBuilder::new()
        .with_allowed_origins(Vec::new())
        .with_mistralrs(Arc::clone(&host));
    let own = Router::new()
        .route("/v1/completions", post(complete))
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .with_state(host)
        .route("/metrics", get(told));
    let all = own.fallback_service(builder.build().await?);
    Ok(all.layer(middleware::from_fn(gate)).layer(cors))
}

/// An origin as browsers write it.
fn origin(text: &String) -> Result<HeaderValue> {
    let host = text.split_once("://").map_or("", |(_, host)| host);
    match HeaderValue::from_str(text) {
        Ok(value) if !host.is_empty() && !host.contains(['/', '*', ' ']) => Ok(value),
        _ => bail!("origin {text:?}: scheme, host and port, as https://example.org:8080"),
    }
}

/// The server's own handler sends every completion to the default model, whatever model it names.
async fn complete(
    State(host): State<Arc<MistralRs>>,
    Json(asked): Json<CompletionRequest>,
) -> CompletionResponder {
    let model = Some(asked.model.clone()).filter(|model| model != "default");
    let (sender, mut receiver) = create_response_channel(None);
    let request = completions::parse_request(asked, Arc::clone(&host), sender);
    let (request, streams) = match request {
        Ok(request) => request,
        Err(error) => return completions::handle_error(host, error.into()),
    };
    if let Err(error) = send_request_with_model(&host, request, model.as_deref()).await {
        return completions::handle_error(host, error.into());
    }
    if streams {
        let streamer = completions::create_streamer(receiver, host, None, None);
        return CompletionResponder::Sse(streamer);
    }
    completions::process_non_streaming_response(&mut receiver, host).await
}
