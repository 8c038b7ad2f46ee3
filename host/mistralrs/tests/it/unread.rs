//! Clients that do not read what they asked for: they wait alone.

use std::time::Duration;

use mistralrs_core::{NormalRequest, Request, Response};
use tokio::sync::mpsc::{Receiver, channel};

use crate::{
    in_process::{ask, completion},
    support::{DRAFTERS, Host, Models, NAME, PLAIN},
};

/// Sends a stream of 100 tokens, whose channel has `places`.
async fn stream(host: &Host, places: usize) -> Receiver<Response> {
    let (sender, receiver) = channel(places);
    let mut request: NormalRequest = completion("abc abc");
    request.response = sender;
    request.id = host.host.next_request_id();
    request.is_streaming = true;
    request.sampling_params.max_len = Some(100);
    request.sampling_params.logits_bias = Some([(2, -100.0)].into());
    let engine = host.host.get_sender(Some(NAME)).expect("an engine");
    let sent = engine.send(Request::Normal(Box::new(request))).await;
    sent.expect("it lives");
    receiver
}

/// The pieces of a stream that is read to its end.
async fn read(mut receiver: Receiver<Response>) -> Vec<String> {
    let mut pieces = Vec::new();
    while let Some(response) = receiver.recv().await {
        match response {
            Response::CompletionChunk(chunk) => pieces.push(chunk.choices[0].text.clone()),
            _ => panic!("no chunk"),
        }
    }
    pieces
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_nobody_reads_wait_alone() {
    let limit = Duration::from_secs(30);
    for (name, flags) in &DRAFTERS[..2] {
        let host = Host::start(Models::tt(), flags).await;
        let good = ask(&host.host, PLAIN, completion("the rain ")).await;
        let expected = read(stream(&host, 1_000).await).await;
        assert_eq!(expected.len(), 100, "{name}");
        for places in [1, 3, 20] {
            let unread = stream(&host, places).await;
            // The same model, and more passes than the stream has tokens.
            for _ in 0..12 {
                let other = ask(&host.host, NAME, completion("the rain "));
                let other = tokio::time::timeout(limit, other).await;
                let other = other.expect("the model is not blocked");
                assert_eq!(other.text(), good.text(), "{name} beside {places} places");
            }
            assert!(unread.len() <= places);
            // One that reads late is given all.
            let late = tokio::time::timeout(limit, read(unread)).await;
            assert_eq!(
                late.expect("it goes on"),
                expected,
                "{name}, {places} places"
            );
            // One that leaves without reading leaves nothing behind.
            drop(stream(&host, places).await);
        }
        host.is_empty().await;
    }
}
