//! One connection per request, so that leaving means closing it.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use reqwest::{Response, header};

use crate::{Behaviour, Error, Outcome, Request, events::Events, outcome};

/// A client of one server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    server: SocketAddr,
    limit: Duration,
}

impl Client {
    /// A client of the server at `server`, over HTTP/1.1. A request may take a minute.
    ///
    /// # Errors
    /// If the HTTP library cannot be set up.
    pub fn new(server: SocketAddr) -> Result<Self, Error> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .http1_only()
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self {
            http,
            server,
            limit: Duration::from_mins(1),
        })
    }

    /// The client, with another limit of a request's time.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sends `request` and behaves as it says. Whatever happens is in the outcome: an answer that took
    /// too long, broke off or made no sense is its error.
    pub async fn send(&self, model: &str, request: &Request) -> Outcome {
        let start = Instant::now();
        let mut outcome = Outcome::default();
        let (limit, leaves) = match request.client {
            Behaviour::Disconnect(ms) => (Duration::from_millis(ms), true),
            Behaviour::Wait | Behaviour::Cancel(_) => (self.limit, false),
        };
        let exchange = self.exchange(model, request, start, &mut outcome);
        match tokio::time::timeout(limit, exchange).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => outcome.fail(causes(&error)),
            Err(_) if leaves => outcome.left = true,
            Err(_) => outcome.fail(format!("no complete answer in {limit:?}")),
        }
        outcome.total = start.elapsed();
        outcome
    }

    /// The body of `GET path`, for instance of `/metrics`, and its status.
    ///
    /// # Errors
    /// If there is no complete answer.
    pub async fn get(&self, path: &str) -> Result<(u16, String), Error> {
        let url = format!("http://{}{path}", self.server);
        let answer = self.http.get(url).timeout(self.limit).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    async fn exchange(
        &self,
        model: &str,
        request: &Request,
        start: Instant,
        outcome: &mut Outcome,
    ) -> Result<(), reqwest::Error> {
        let url = format!("http://{}{}", self.server, request.path);
        let post = self.http.post(url).body(request.json(model));
        let post = post.header(header::CONTENT_TYPE, "application/json");
        let mut answer = post.send().await?;
        outcome.status = Some(answer.status().as_u16());
        let kind = answer.headers().get(header::CONTENT_TYPE);
        if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
            return stream(&mut answer, request, start, outcome).await;
        }
        let ok = answer.status().is_success();
        let mut body = Vec::new();
        while let Some(bytes) = answer.chunk().await? {
            outcome.first_byte.get_or_insert_with(|| start.elapsed());
            body.extend_from_slice(&bytes);
        }
        let body = String::from_utf8_lossy(&body);
        if ok {
            outcome.take(&body);
        } else {
            outcome.fail(outcome::message(&body));
        }
        Ok(())
    }
}

async fn stream(
    answer: &mut Response,
    request: &Request,
    start: Instant,
    outcome: &mut Outcome,
) -> Result<(), reqwest::Error> {
    let most = match request.client {
        Behaviour::Cancel(most) => most,
        Behaviour::Wait | Behaviour::Disconnect(_) => usize::MAX,
    };
    let mut events = Events::default();
    let mut seen = 0;
    while let Some(bytes) = answer.chunk().await? {
        outcome.first_byte.get_or_insert_with(|| start.elapsed());
        for data in events.push(&bytes) {
            outcome.take(&data);
            seen += 1;
            if seen == most && !outcome.done_marker {
                outcome.left = true;
                return Ok(());
            }
        }
    }
    if !events.at_rest() {
        outcome.fail("the stream ended inside an event".to_owned());
    }
    Ok(())
}

/// An error with its causes, in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(error) = inner {
        text.push_str(": ");
        text.push_str(&error.to_string());
        inner = error.source();
    }
    text
}
