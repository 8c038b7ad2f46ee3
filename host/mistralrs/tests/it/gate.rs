//! What the server answers before a model is asked.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use eyrie_host_client::{Expect, Request};
use eyrie_mistralrs::{EyrieLoader, serve};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{DRAFTERS, Host, Models, NAME, listen};

/// What a server answers, head and body.
async fn answer(server: SocketAddr, line: &str, head: &str, body: &Value) -> String {
    let body = body.to_string();
    let text = format!(
        "{line} HTTP/1.1\r\nhost: it\r\nconnection: close\r\n{head}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(server).await.expect("a connection");
    stream.write_all(text.as_bytes()).await.expect("it is sent");
    let mut text = String::new();
    let read = tokio::time::timeout(Duration::from_mins(1), stream.read_to_string(&mut text));
    read.await.expect("within a minute").expect("an answer");
    text
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).expect("a status")
}

async fn host() -> Host {
    Host::start(Models::tt(), DRAFTERS[1].1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn routes() {
    let host = host().await;
    let server = listen(&host.host, &host.loader).await;
    let named = json!({"model": NAME, "model_id": NAME, "prompt": "a", "input": "a"});
    for line in [
        "POST /v1/models/unload",
        "POST /v1/models/reload",
        "POST /v1/models/status",
        "POST /v1/models/tune",
        "POST /re_isq",
        "GET /v1/system/info",
        "POST /v1/system/doctor",
        "POST /v1/images/generations",
        "POST /v1/audio/speech",
        "POST /v1/embeddings",
        "POST /v1/models/unload/",
        "POST /v1/responses/../models/unload",
        "POST //v1/models/unload",
        "GET /docs",
    ] {
        let answer = answer(server, line, "", &named).await;
        assert_eq!(status(&answer), "404", "{line}: {answer}");
    }
    for line in ["GET /", "GET /health", "GET /v1/models", "GET /metrics"] {
        let answer = answer(server, line, "", &json!({})).await;
        assert_eq!(status(&answer), "200", "{line}: {answer}");
    }
    let asked = json!({"model": NAME, "input": "a", "max_output_tokens": 2});
    let told = answer(server, "POST /v1/responses", "", &asked).await;
    assert_eq!(status(&told), "200", "{told}");
    let body = told.split_once("\r\n\r\n").expect("a body").1;
    let id = body.split("\"id\":\"").nth(1).expect("an id");
    let id = id.split('"').next().expect("an end");
    let line = format!("GET /v1/responses/{id}");
    let again = answer(server, &line, "", &json!({})).await;
    assert_eq!(status(&again), "200", "{again}");
    let request = Request::completion("still there", "a");
    host.one(NAME, &request).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn origins() {
    let host = host().await;
    let closed = listen(&host.host, &host.loader).await;
    let metrics = host.loader.metrics();
    let ours = ["http://ours:1".to_owned()];
    let router = serve::router(Arc::clone(&host.host), Arc::clone(&metrics), &ours).await;
    let router = router.expect("routes");
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.expect("a port");
    let open = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    let asked = json!({"model": NAME, "prompt": "a", "max_tokens": 1,
        "messages": [{"role": "user", "content": "a"}]});
    for line in [
        "GET /v1/models",
        "GET /metrics",
        "POST /v1/completions",
        "POST /v1/chat/completions",
        "OPTIONS /v1/chat/completions",
        "OPTIONS /v1/completions",
    ] {
        for (server, from, expected) in [
            (closed, "http://theirs", None),
            (closed, "http://ours:1", None),
            (open, "http://theirs", None),
            (open, "http://ours:1", Some("http://ours:1")),
        ] {
            let head = format!("origin: {from}\r\naccess-control-request-method: POST\r\n");
            let answer = answer(server, line, &head, &asked).await;
            assert_eq!(status(&answer), "200", "{line}: {answer}");
            let allowed: Vec<_> = answer
                .lines()
                .filter_map(|line| line.strip_prefix("access-control-allow-origin: "))
                .collect();
            assert_eq!(
                allowed,
                expected.into_iter().collect::<Vec<_>>(),
                "{line} {from}"
            );
        }
    }
    for wrong in ["*", "ours", "http://", "http://ours/", "http://a\nb"] {
        let wrong = [wrong.to_owned()];
        let refused = serve::router(Arc::clone(&host.host), Arc::clone(&metrics), &wrong).await;
        let error = refused.expect_err("it is refused").to_string();
        assert!(error.starts_with("origin "), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_the_host_would_act_on() {
    let host = host().await;
    let (chat, plain) = (
        Request::chat("chat", "a"),
        Request::completion("plain", "a"),
    );
    let image = json!([{"role": "user", "content": [
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/a.png"}},
    ]}]);
    for (request, reason) in [
        (chat.clone().with("n", 129), "n 129"),
        (plain.clone().with("n", 4_000_000_000_u64), "n 4000000000"),
        (plain.clone().with("n", 0), "n 0"),
        (plain.clone().with("best_of", 0), "best_of 0"),
        (plain.with("best_of", 129).with("n", 1), "best_of 129"),
        (chat.with("messages", image), "images: image_url"),
    ] {
        let mut request = request;
        request.expect = Expect::Refused;
        let outcome = host.one(NAME, &request).await;
        assert_eq!(outcome.status, Some(422), "{outcome:?}");
        let error = outcome.error.as_deref().unwrap_or_default();
        assert!(error.contains(reason), "{error}");
    }
    let many = Request::completion("as many as may be", "a").with("n", 128);
    let many = many.with("max_tokens", 1).with("temperature", 1.0);
    assert_eq!(host.one(NAME, &many).await.choices.len(), 128);
    host.is_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grammars_that_no_token_fits() {
    let host = host().await;
    for (regex, status) in [("\u{c4}{3}", 422), ("abc\u{c4}", 500)] {
        let grammar = json!({"type": "regex", "value": regex});
        let mut request = Request::completion("no token fits", "abab").with("grammar", grammar);
        request.expect = Expect::Refused;
        let outcome = host.client.send(NAME, &request).await;
        let error = outcome.error.as_deref().unwrap_or_default();
        assert_eq!(outcome.status, Some(status), "{regex}: {outcome:?}");
        assert!(
            error.contains("grammar: the grammar cannot go on: "),
            "{error}"
        );
    }
    host.is_empty().await;
}

#[test]
fn names_of_models() {
    let models = Models::tt();
    let loader = EyrieLoader::new(models.options(&[]));
    for name in ["", "a\"b", "a\\b", "a\nb", "\u{e9}", "a\u{7f}"] {
        let error = loader.pipeline(name, true).expect_err("it is refused");
        let error = error.to_string();
        assert!(
            error.starts_with(&format!("model name {name:?}")),
            "{error}"
        );
    }
    assert!(loader.pipeline("Org/a model-1.5:b", true).is_ok());
}
