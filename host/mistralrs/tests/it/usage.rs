//! The counters of a request's usage and those of `/metrics`.

use std::collections::BTreeSet;

use eyrie_host_client::{Outcome, Request};
use serde_json::json;

use crate::support::{DRAFTERS, Host, Models, NAME, speculative, texts, used};

/// Requests without an end of their own.
fn requests() -> Vec<Request> {
    let bias = json!({"2": -100});
    let request = |name: &str| {
        let request = Request::chat(name, "abcabc abcabc").with("logit_bias", bias.clone());
        request.with("max_tokens", 30).with("temperature", 0.8)
    };
    vec![
        request("one"),
        request("three").with("n", 3),
        request("streamed").with("stream", true),
        request("two streamed").with("stream", true).with("n", 2),
        request("greedy").with("temperature", 0),
    ]
}

fn list(outcome: &Outcome, key: &str) -> Vec<u64> {
    let usage = outcome.usage.as_ref().expect("a usage");
    let list = usage["speculative"][key].as_array().expect("a list");
    list.iter().map(|n| n.as_u64().expect("a number")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_add_up() {
    for (name, flags) in DRAFTERS {
        let host = Host::start(Models::tt(), flags).await;
        let mut before = Vec::new();
        let keys = [
            "rounds",
            "drafted_tokens",
            "accepted_tokens",
            "tokens",
            "choices",
        ];
        for key in keys {
            before.push(host.counter(key, NAME).await);
        }
        let requests = requests();
        let outcomes = host.all(NAME, &requests).await;
        let mut sums = [0.0; 5];
        for (request, outcome) in requests.iter().zip(&outcomes) {
            assert_eq!(outcome.check(request), Ok(()), "{name}: {}", request.name);
            let [rounds, drafted, accepted] =
                ["rounds", "drafted", "accepted"].map(|key| speculative(outcome, key));
            let (tokens, choices) = (used(outcome, "completion_tokens"), request.choices() as u64);
            assert_eq!(tokens, 30 * choices, "{name}: {}", request.name);
            // Nothing is cut: a first token each, and in every round what was accepted and one more.
            assert_eq!(choices + rounds + accepted, tokens, "{name}: {outcome:?}");
            assert!(accepted <= drafted);
            assert!(
                used(outcome, "prompt_tokens") > 10,
                "{name}: {}",
                request.name
            );
            let by_position = list(outcome, "accepted_by_position");
            assert_eq!(by_position.iter().sum::<u64>(), accepted, "{name}");
            assert!(by_position.is_sorted_by(|a, b| a >= b), "{by_position:?}");
            let drafted_at = list(outcome, "drafted_by_position");
            assert!(drafted_at.is_sorted_by(|a, b| a >= b), "{drafted_at:?}");
            if name != "eagle tree" {
                assert_eq!(drafted_at.iter().sum::<u64>(), drafted, "{name}");
            }
            for (sum, n) in sums
                .iter_mut()
                .zip([rounds, drafted, accepted, tokens, choices])
            {
                #[expect(clippy::cast_precision_loss, reason = "small numbers")]
                let n = n as f64;
                *sum += n;
            }
        }
        assert_eq!(sums[1] > 0.0, name != "none", "{name}: {sums:?}");
        for ((key, before), sum) in keys.iter().zip(&before).zip(sums) {
            let now = host.counter(key, NAME).await;
            assert_eq!(now - before, sum, "{name}: {key}");
        }
        host.is_empty().await;
    }
}

/// Without a seed every request has its own, and it replays the request.
#[tokio::test(flavor = "multi_thread")]
async fn the_seed_replays_the_request() {
    let host = Host::start(Models::tt(), DRAFTERS[1].1).await;
    let requests = vec![requests().swap_remove(1); 6];
    let outcomes = host.all(NAME, &requests).await;
    let seeds: Vec<_> = outcomes
        .iter()
        .map(|outcome| speculative(outcome, "seed"))
        .collect();
    assert_eq!(seeds.iter().collect::<BTreeSet<_>>().len(), 6, "{seeds:?}");
    assert!(seeds.iter().all(|seed| *seed < 1 << 53), "{seeds:?}");
    let different: BTreeSet<_> = outcomes.iter().flat_map(texts).collect();
    assert_eq!(different.len(), 18, "{different:?}");
    let mut bare = crate::expected::Bare::new(&host.models.options(&[]));
    for ((request, outcome), seed) in requests.iter().zip(&outcomes).zip(seeds) {
        let expected = bare.answer(request, seed);
        let expected: Vec<_> = expected
            .iter()
            .map(|choice| choice.text.as_deref())
            .collect();
        let expected: Vec<_> = expected
            .into_iter()
            .flatten()
            .map(str::trim_start)
            .collect();
        assert_eq!(texts(outcome), expected);
    }
}
