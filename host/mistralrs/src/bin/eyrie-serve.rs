//! mistral.rs' OpenAI server, decoding with Eyrie.

use std::{io::Write, net::IpAddr, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use eyrie_mistralrs::{EyrieLoader, Options, serve};
use mistralrs_core::Loader;
use tracing_subscriber::EnvFilter;

/// mistral.rs' OpenAI server, decoding with Eyrie
#[derive(Debug, Parser)]
#[command(name = "cargo xtask host serve", version)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Name of the model [default: the name of its file or folder]; with -plain after it, it decodes
    /// without speculation
    #[arg(long)]
    name: Option<String>,
    /// Address to listen on; whoever reaches it may use it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0 lets the system choose
    #[arg(long, default_value_t = 1234)]
    port: u16,
    /// Origin whose pages may read the answers, as https://example.org; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Runtime::new().context("threads of the server");
    match runtime.and_then(|runtime| runtime.block_on(run(args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("{error:#}");
            let lines: Vec<_> = text.split_whitespace().collect();
            let _ = writeln!(std::io::stderr(), "error: {}", lines.join(" "));
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let loader = EyrieLoader::new(args.options);
    let name = args.name.unwrap_or_else(|| loader.get_id());
    let address = (args.host, args.port);
    let about = || format!("--host {} --port {}", args.host, args.port);
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(about)?;
    let host = serve::start(&loader, &name).await?;
    let router = serve::router(host, loader.metrics(), &args.allow_origin).await?;
    // Whoever started it may not listen.
    let _ = writeln!(
        std::io::stdout(),
        "http://{}/v1 serves {name} and {name}{}",
        listener.local_addr()?,
        serve::PLAIN
    );
    axum::serve(listener, router).await.context("the server")
}
