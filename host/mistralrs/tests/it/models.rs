//! Several models in one process.

use eyrie_fixtures::{Fixture, tt};
use eyrie_host_client::{Expect, Outcome, mixed};
use eyrie_mistralrs::{EyrieLoader, Held, serve};
use serde_json::Value;

use crate::support::{DRAFTERS, Models, client, listen, texts};

fn answers(outcomes: &[Outcome]) -> Vec<Vec<&str>> {
    outcomes.iter().map(texts).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_models_and_their_twins_answer_at_once() {
    let other = Models::of(&Fixture { seed: 77, ..tt() });
    let one = Models::tt();
    let seeded = |flags: &'static [&'static str]| [flags, &["--seed", "4"]].concat();
    let first = EyrieLoader::new(one.options(&seeded(DRAFTERS[1].1)));
    let second = EyrieLoader::new(other.options(&seeded(DRAFTERS[3].1)));
    let second = second.with_metrics(first.metrics());
    let host = serve::start(&first, "one").await.expect("it starts");
    serve::add(&host, &second, "two")
        .await
        .expect("it is added");
    let again = serve::add(&host, &second, "two").await;
    assert!(again.is_err(), "a name is taken once");
    let server = listen(&host, &first).await;
    let client = client(server);

    let (_, text) = client.get("/v1/models").await.expect("an answer");
    let models: Value = serde_json::from_str(&text).expect("JSON");
    let names = models["data"].as_array().expect("a list").iter();
    let names: Vec<_> = names.filter_map(|model| model["id"].as_str()).collect();
    for name in ["one", "one-plain", "two", "two-plain"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }

    let requests = mixed().expect("the requests can be read");
    let whole = requests
        .into_iter()
        .filter(|request| request.expect == Expect::Ok);
    let requests: Vec<_> = whole.collect();
    let all = async |model: &str| {
        let sent = requests.iter().map(|request| client.send(model, request));
        futures::future::join_all(sent).await
    };
    let (a, b, c, d) = tokio::join!(all("one"), all("one-plain"), all("two"), all("two-plain"));
    for (request, outcome) in requests.iter().zip(&a).chain(requests.iter().zip(&c)) {
        assert_eq!(outcome.check(request), Ok(()), "{}", request.name);
    }
    assert_eq!(answers(&a), answers(&b));
    assert_eq!(answers(&c), answers(&d));
    assert_ne!(answers(&a), answers(&c));

    // One list of counters, with both models in it.
    let (_, text) = client.get("/metrics").await.expect("an answer");
    assert!(
        text.contains("model=\"one\"") && text.contains("model=\"two\""),
        "{text}"
    );
    assert_eq!(text.matches("# EOF").count(), 1, "{text}");
    let missing = client.send("three", &requests[0]).await;
    assert!(missing.error.is_some(), "{missing:?}");
}

/// The weights are loaded once, and the sequences of all pipelines are in the same passes.
#[tokio::test(flavor = "multi_thread")]
async fn pipelines_of_one_loader_share_its_engine() {
    let models = Models::tt();
    let loader = EyrieLoader::new(models.options(&["--seed", "4"]));
    assert_eq!(loader.held(), Held::default());
    let host = serve::start(&loader, "a").await.expect("it starts");
    for name in ["b", "c", "d"] {
        serve::add(&host, &loader, name).await.expect("it is added");
    }
    let client = client(listen(&host, &loader).await);
    let request = eyrie_host_client::Request::completion("long", "the rain")
        .with("max_tokens", 200)
        .with("temperature", 1.0)
        .with("logit_bias", serde_json::json!({"2": -100}));
    let names = ["a", "b", "c", "d"].repeat(4);
    let sent = names.iter().map(|model| client.send(model, &request));
    let outcomes = futures::future::join_all(sent).await;
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.check(&request) == Ok(()))
    );
    assert!(
        outcomes
            .iter()
            .all(|outcome| texts(outcome) == texts(&outcomes[0]))
    );
    let metrics = loader.metrics().text();
    let passes = metrics
        .lines()
        .find_map(|line| line.strip_prefix("eyrie_passes_total "));
    let passes: f64 = passes.expect("a line").parse().expect("a number");
    assert!(passes < 1_600.0, "{passes} passes for 16 times 200");
}
