//! Tiny models, and servers over them.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use eyrie_fixtures::{Fixture, head, td, tt};
use eyrie_host_client::{Client, Outcome, Request};
use eyrie_mistralrs::{EyrieLoader, Held, Options, serve};
use mistralrs_core::MistralRs;
use tempfile::TempDir;

/// The name of the model; with `-plain` after it, it does not speculate.
pub(crate) const NAME: &str = "tiny";
/// The same without speculation.
pub(crate) const PLAIN: &str = "tiny-plain";

/// A folder of tiny models, for as long as it lives.
pub(crate) struct Models(pub(crate) TempDir);

impl Models {
    /// `target` with a tokenizer, its end token 2; beside it a draft model and an EAGLE head that fit TT.
    pub(crate) fn of(target: &Fixture) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let spoken = |fixture: &Fixture| Fixture {
            tokenizer: true,
            eos: Some(vec![2]),
            ..fixture.clone()
        };
        let write = |fixture: &Fixture, name: &str| {
            let written = spoken(fixture).write_dir(&dir.path().join(name));
            written.expect("the fixture is written");
        };
        write(target, "target");
        write(&td(), "draft");
        let head = head::tt_e3().write_dir(&dir.path().join("head"));
        head.expect("the head is written");
        Self(dir)
    }

    /// TT.
    pub(crate) fn tt() -> Self {
        Self::of(&tt())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Flags with `@name` for a file of the folder, and the target as the model.
    pub(crate) fn options(&self, flags: &[&str]) -> Options {
        let own = ["--model", "@target", "--threads", "1"];
        let all = own
            .iter()
            .chain(flags)
            .map(|flag| match flag.strip_prefix('@') {
                Some(name) => self.path().join(name).display().to_string(),
                None => (*flag).to_owned(),
            });
        Options::parse(all.collect::<Vec<_>>()).expect("valid flags")
    }

    /// Writes a script of drafts, one list a round.
    pub(crate) fn script(&self, name: &str, rounds: &[Vec<u32>]) {
        let text = serde_json::to_string(rounds).expect("numbers");
        std::fs::write(self.path().join(name), text).expect("the script is written");
    }
}

/// Flags of every drafter.
pub(crate) const DRAFTERS: [(&str, &[&str]); 6] = [
    ("none", &[]),
    ("ngram", &["--drafter", "ngram"]),
    ("model", &["--drafter", "model", "--draft", "@draft"]),
    ("self", &["--drafter", "model", "--draft", "@target"]),
    ("eagle", &["--drafter", "eagle", "--draft", "@head"]),
    (
        "eagle tree",
        &["--drafter", "eagle", "--draft", "@head", "--tree", "3x3x8"],
    ),
];

/// A host over one loader, and its server.
pub(crate) struct Host {
    pub(crate) models: Models,
    pub(crate) loader: EyrieLoader,
    pub(crate) host: Arc<MistralRs>,
    pub(crate) client: Client,
}

impl Host {
    /// A server of `models`.
    pub(crate) async fn start(models: Models, flags: &[&str]) -> Self {
        let loader = EyrieLoader::new(models.options(flags));
        let host = serve::start(&loader, NAME).await.expect("it starts");
        let client = client(listen(&host, &loader).await);
        Self {
            models,
            loader,
            host,
            client,
        }
    }

    /// Sends `requests` at once.
    pub(crate) async fn all(&self, model: &str, requests: &[Request]) -> Vec<Outcome> {
        let sent = requests
            .iter()
            .map(|request| self.client.send(model, request));
        futures::future::join_all(sent).await
    }

    /// Sends one request that is answered.
    pub(crate) async fn one(&self, model: &str, request: &Request) -> Outcome {
        let outcome = self.client.send(model, request).await;
        assert_eq!(outcome.check(request), Ok(()), "{}", request.name);
        outcome
    }

    /// The sum of a counter over its labels that contain `label`.
    pub(crate) async fn counter(&self, name: &str, label: &str) -> f64 {
        let (status, text) = self.client.get("/metrics").await.expect("an answer");
        assert_eq!(status, 200);
        let name = format!("eyrie_{name}_total");
        let lines = text.lines().filter_map(|line| {
            let (key, value) = line.rsplit_once(' ')?;
            let rest = key.strip_prefix(&name)?;
            let own = rest.is_empty() || rest.starts_with('{');
            (own && rest.contains(label)).then(|| value.parse::<f64>().expect("a number"))
        });
        lines.sum()
    }

    /// Asserts that nothing is left of any request once the engine has made another pass.
    pub(crate) async fn is_empty(&self) {
        let request = Request::completion("the last", "a").with("max_tokens", 1);
        self.one(PLAIN, &request).await;
        // An answer is sent a moment before its request is forgotten.
        for _ in 0..500 {
            if self.loader.held() == Held::default() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("left behind: {:?}", self.loader.held());
    }
}

/// A server of `host` on a port of its own.
pub(crate) async fn listen(host: &Arc<MistralRs>, loader: &EyrieLoader) -> SocketAddr {
    let router = serve::router(Arc::clone(host), loader.metrics(), &[]);
    let router = router.await.expect("routes");
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// A client of `server`.
pub(crate) fn client(server: SocketAddr) -> Client {
    Client::new(server).expect("a client")
}

/// What `usage.speculative` says under `key`.
pub(crate) fn speculative(outcome: &Outcome, key: &str) -> u64 {
    let usage = outcome.usage.as_ref().expect("a usage");
    let value = usage["speculative"][key].as_u64();
    value.unwrap_or_else(|| panic!("no {key} in {usage}"))
}

/// What `usage` says under `key`.
pub(crate) fn used(outcome: &Outcome, key: &str) -> u64 {
    let usage = outcome.usage.as_ref().expect("a usage");
    usage[key].as_u64().expect("a number")
}

/// The text of every choice.
pub(crate) fn texts(outcome: &Outcome) -> Vec<&str> {
    let choices = outcome.choices.iter();
    choices.map(|choice| choice.text.as_str()).collect()
}
