//! The client against a server that says what a test tells it to.

use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::header::CONTENT_TYPE,
    response::Response,
    routing::post,
};
use futures::{StreamExt, future, stream};
use tokio::{net::TcpListener, sync::oneshot};

use super::*;

type Pieces = Vec<Result<Bytes, std::io::Error>>;

const TWO: &str = concat!(
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"gr\u{fc}n\"},\"finish_reason\":null},",
    "{\"index\":1,\"delta\":{\"content\":\"b\"},\"finish_reason\":null}],\"usage\":null}\n\n",
    "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"c\"},\"finish_reason\":\"stop\"},",
    "{\"index\":0,\"delta\":{\"content\":\"!\"},\"finish_reason\":\"length\"}],\"usage\":{\"total_tokens\":9}}\n\n",
    "data: [DONE]\n\n",
);

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Sends a completion request that `change` makes to a server that answers with `pieces`.
async fn ask(kind: &'static str, status: u16, pieces: Pieces, request: &Request) -> Outcome {
    let pieces = std::sync::Mutex::new(Some(pieces));
    let pieces = std::sync::Arc::new(pieces);
    let answer = move || {
        let pieces = pieces.lock().expect("not poisoned").take();
        // A pause keeps the pieces apart on the wire.
        let body = stream::iter(pieces.expect("asked once")).then(|piece| async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            piece
        });
        let answer = Response::builder()
            .status(status)
            .header(CONTENT_TYPE, kind);
        future::ready(answer.body(Body::from_stream(body)).expect("an answer"))
    };
    let address = serve(Router::new().route("/v1/completions", post(answer))).await;
    let client = Client::new(address).expect("a client");
    client.send("m", request).await
}

fn streamed() -> Request {
    Request::completion("t", "a")
        .with("stream", true)
        .with("n", 2)
}

fn pieces(of: &[&[u8]]) -> Pieces {
    of.iter()
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect()
}

fn cut(text: &str, at: usize) -> Pieces {
    let (a, b) = text.as_bytes().split_at(at);
    pieces(&[a, b])
}

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

#[tokio::test]
async fn a_stream_is_joined_by_choice_wherever_it_is_cut() {
    let inside_a_character = TWO.find('\u{fc}').expect("it is there") + 1;
    for at in [3, inside_a_character, TWO.len() - 4] {
        let outcome = ask(EVENTS, 200, cut(TWO, at), &streamed()).await;
        assert_eq!(outcome.check(&streamed()), Ok(()), "cut at {at}");
        let texts: Vec<_> = outcome.choices.iter().map(|c| c.text.as_str()).collect();
        assert_eq!(texts, ["gr\u{fc}n!", "bc"]);
        assert_eq!(outcome.choices[0].finish_reason.as_deref(), Some("length"));
        assert_eq!(outcome.choices[1].chunks, 2);
        assert_eq!(outcome.usage, Some(serde_json::json!({"total_tokens": 9})));
        assert!(
            outcome
                .first_byte
                .is_some_and(|first| first < outcome.total)
        );
    }
}

#[tokio::test]
async fn a_stream_that_stops_inside_a_line_is_an_error() {
    let end = TWO.len() - "DONE]\n\n".len();
    let outcome = ask(EVENTS, 200, pieces(&[&TWO.as_bytes()[..end]]), &streamed()).await;
    assert_eq!(
        outcome.error.as_deref(),
        Some("the stream ended inside an event")
    );
    assert!(!outcome.done_marker);
    assert_eq!(outcome.choices[1].text, "bc");
    assert!(outcome.check(&streamed()).is_err());
}

#[tokio::test]
async fn a_connection_that_breaks_inside_a_character_is_an_error() {
    let at = TWO.find('\u{fc}').expect("it is there") + 1;
    let mut broken = pieces(&[&TWO.as_bytes()[..at]]);
    broken.push(Err(std::io::Error::other("gone")));
    let outcome = ask(EVENTS, 200, broken, &streamed()).await;
    assert!(outcome.error.is_some(), "{outcome:?}");
    assert!(!outcome.left && outcome.choices.is_empty());
}

#[tokio::test]
async fn a_stream_without_the_done_marker_is_seen() {
    let end = TWO.len() - "data: [DONE]\n\n".len();
    let outcome = ask(EVENTS, 200, pieces(&[&TWO.as_bytes()[..end]]), &streamed()).await;
    assert_eq!(outcome.error, None);
    let complaint = outcome.check(&streamed()).expect_err("no marker");
    assert!(
        complaint.starts_with("a stream without [DONE]"),
        "{complaint}"
    );
}

#[tokio::test]
async fn what_is_not_json_is_an_error() {
    let one = Request::completion("t", "a");
    for broken in [
        "{\"choices\":[",
        "[]",
        "nothing",
        "{\"choices\":[{\"text\":\"a\"}]}",
    ] {
        let outcome = ask(JSON, 200, pieces(&[broken.as_bytes()]), &one).await;
        assert!(outcome.error.is_some(), "{broken}: {outcome:?}");
        assert!(outcome.check(&one).is_err());
    }
    let event = ask(
        EVENTS,
        200,
        pieces(&[b"data: no such model\n\n"]),
        &streamed(),
    )
    .await;
    let error = event.error.expect("an error");
    assert_eq!(error, "not a JSON object: \"no such model\"");
}

#[tokio::test]
async fn an_answer_in_one_piece_has_text_reason_and_log_probabilities() {
    let request = Request::completion("t", "a").with("logprobs", 1);
    let answer = concat!(
        "{\"choices\":[{\"index\":0,\"text\":\"ab\",\"finish_reason\":\"length\",\"logprobs\":{\"content\":[",
        "{\"token\":\"a\",\"logprob\":-0.5,\"top_logprobs\":[{\"token\":4,\"logprob\":-0.5}]},",
        "{\"token\":\"b\",\"logprob\":null,\"top_logprobs\":[]}]}}],\"usage\":{}}",
    );
    let outcome = ask(JSON, 200, cut(answer, 40), &request).await;
    assert_eq!(outcome.check(&request), Ok(()));
    let [choice] = &outcome.choices[..] else {
        panic!("one choice: {outcome:?}");
    };
    assert_eq!((choice.text.as_str(), choice.chunks), ("ab", 1));
    let logprobs: Vec<_> = choice.logprobs.iter().map(|l| l.logprob).collect();
    assert_eq!(logprobs, [Some(-0.5), None]);
    assert_eq!(choice.logprobs[0].top, [(4.into(), Some(-0.5))]);
}

#[tokio::test]
async fn a_refusal_has_the_message_of_the_server() {
    let mut request = Request::completion("t", "a");
    request.expect = Expect::Refused;
    for body in [
        "{\"message\":\"too long\"}",
        "{\"error\":{\"message\":\"too long\"}}",
        "too long",
    ] {
        let outcome = ask(JSON, 422, pieces(&[body.as_bytes()]), &request).await;
        assert_eq!(outcome.status, Some(422));
        assert_eq!(outcome.error.as_deref(), Some("too long"));
        assert_eq!(outcome.check(&request), Ok(()));
    }
}

#[tokio::test]
async fn a_client_that_cancels_closes_the_connection() {
    let mut request = streamed();
    request.client = Behaviour::Cancel(1);
    request.expect = Expect::Gone;
    let outcome = ask(EVENTS, 200, cut(TWO, 200), &request).await;
    assert_eq!(outcome.check(&request), Ok(()));
    assert_eq!(outcome.choices[0].chunks, 1);

    request.client = Behaviour::Cancel(5);
    let outcome = ask(EVENTS, 200, cut(TWO, 200), &request).await;
    assert!(outcome.check(&request).is_err(), "the answer was complete");
}

/// Tells when it is dropped: axum drops a handler whose client has gone.
struct Guard(Option<oneshot::Sender<()>>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            let _ = tell.send(());
        }
    }
}

#[tokio::test]
async fn a_client_that_disconnects_is_gone_for_the_server() {
    let (tell, gone) = oneshot::channel();
    let guard = std::sync::Arc::new(std::sync::Mutex::new(Some(Guard(Some(tell)))));
    let hang = move || {
        let held = guard.lock().expect("not poisoned").take();
        async move {
            let _held = held;
            future::pending::<&'static str>().await
        }
    };
    let address = serve(Router::new().route("/v1/completions", post(hang))).await;
    let client = Client::new(address).expect("a client");
    let mut request = Request::completion("t", "a");
    request.client = Behaviour::Disconnect(50);
    request.expect = Expect::Gone;
    let outcome = client.send("m", &request).await;
    assert_eq!(outcome.check(&request), Ok(()));
    assert_eq!(outcome.status, None);
    let told = tokio::time::timeout(Duration::from_secs(10), gone).await;
    assert!(matches!(told, Ok(Ok(()))), "the connection is still open");
}

#[tokio::test]
async fn an_answer_that_never_comes_is_an_error() {
    let hang = future::pending::<&'static str>;
    let address = serve(Router::new().route("/v1/completions", post(hang))).await;
    let client = Client::new(address).expect("a client");
    let client = client.with_limit(Duration::from_millis(50));
    let outcome = client.send("m", &Request::completion("t", "a")).await;
    assert_eq!(outcome.error.as_deref(), Some("no complete answer in 50ms"));
    assert!(!outcome.left);
}

#[test]
fn there_are_thirty_two_mixed_requests_with_names_of_their_own() {
    let all = mixed().expect("the list can be read");
    assert_eq!(all.len(), 32);
    let mut names: Vec<_> = all.iter().map(|request| &request.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 32);
    let count = |what: fn(&Request) -> bool| all.iter().filter(|r| what(r)).count();
    assert!(count(Request::streams) >= 10 && count(Request::streams) <= 22);
    assert!(count(Request::logprobs) >= 2);
    assert!(count(|r| r.choices() > 1) >= 3);
    assert_eq!(count(|r| r.expect == Expect::Refused), 1);
    assert_eq!(count(|r| r.expect == Expect::Gone), 2);
    for tag in [Tag::Grammar, Tag::Dry, Tag::Tools] {
        assert!(all.iter().any(|request| request.needs(tag)), "{tag:?}");
    }
}

#[test]
fn a_line_that_is_no_request_is_named() {
    let line = "{\"name\":\"a\",\"path\":\"/\",\"body\":{}}";
    let error = parse(&format!("{line}\n{{\"name\":1}}")).expect_err("the second line");
    assert_eq!(error.to_string(), "line 2 of the requests");
}
