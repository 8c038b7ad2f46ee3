//! Thirty-two mixed requests at once.

use eyrie::report::ChoiceReport;
use eyrie_host_client::{Choice, Expect, Outcome, Request, Tag, mixed};

use crate::{
    expected::Bare,
    support::{DRAFTERS, Host, Models, NAME, PLAIN, used},
};

/// What an engine without the host gives for the requests that it can be asked.
struct Expected {
    bare: Bare,
    seed: u64,
}

impl Expected {
    fn of(models: &Models, seed: u64) -> Self {
        let bare = Bare::new(&models.options(&[]));
        Self { bare, seed }
    }

    fn check(&mut self, request: &Request, outcome: &Outcome) {
        let needs = [Tag::Grammar, Tag::Dry, Tag::Tools].map(|tag| request.needs(tag));
        if request.expect != Expect::Ok || needs.contains(&true) {
            return;
        }
        let expected = self.bare.answer(request, self.seed);
        assert_eq!(outcome.choices.len(), expected.len(), "{}", request.name);
        for (choice, expected) in outcome.choices.iter().zip(&expected) {
            self.check_choice(request, choice, expected);
        }
        let counted = outcome.usage.is_some();
        // The host's chunks of a completion have no room for a usage.
        let has_none = request.streams() && request.path == "/v1/completions";
        assert_ne!(counted, has_none, "{}", request.name);
        if counted {
            let tokens: usize = expected.iter().map(|choice| choice.tokens.len()).sum();
            let counted = used(outcome, "completion_tokens");
            assert_eq!(counted, tokens as u64, "{}", request.name);
            let prompt = expected[0].usage.prompt_tokens as u64;
            assert_eq!(used(outcome, "prompt_tokens"), prompt, "{}", request.name);
        }
    }

    fn check_choice(&self, request: &Request, choice: &Choice, expected: &ChoiceReport) {
        let name = &request.name;
        let text = expected.text.as_deref().expect("a tokenizer");
        assert_eq!(choice.text, text.trim_start(), "{name}");
        let reason = serde_json::to_value(expected.finish_reason).expect("a word");
        assert_eq!(choice.finish_reason.as_deref(), reason.as_str(), "{name}");
        let Some(logprobs) = &expected.logprobs else {
            assert!(choice.logprobs.is_empty(), "{name}");
            return;
        };
        assert_eq!(choice.logprobs.len(), logprobs.len(), "{name}");
        for (got, expected) in choice.logprobs.iter().zip(logprobs) {
            // A stream has the text that the token added in place of its own.
            if !request.streams() {
                assert_eq!(got.token, self.bare.spell(expected.id), "{name}");
            }
            let close = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-5);
            assert!(close(got.logprob, expected.logprob), "{name}: {got:?}");
            assert_eq!(got.top.len(), expected.top.len(), "{name}");
            for ((id, x), (expected, y)) in got.top.iter().zip(&expected.top) {
                assert_eq!(id, expected, "{name}");
                assert!(close(*x, *y), "{name}: {x:?} {y}");
            }
        }
    }
}

/// What of an outcome does not depend on the time it took, nor on speculation.
fn essence(outcome: &Outcome) -> String {
    let usage = |key| outcome.usage.as_ref().map(|usage| usage[key].clone());
    let choices = outcome.choices.iter().map(|choice| {
        let mut choice = choice.clone();
        // They have ids of their own.
        let names = choice
            .tool_calls
            .iter()
            .map(|call| call["function"].clone());
        choice.tool_calls = names.collect();
        choice
    });
    let choices: Vec<_> = choices.collect();
    let (prompt, tokens) = (usage("prompt_tokens"), usage("completion_tokens"));
    format!("{:?} {prompt:?} {tokens:?} {choices:#?}", outcome.error)
}

async fn check(drafter: &str, flags: &[&str], seed: u64) {
    let models = Models::tt();
    let mut expected = Expected::of(&models, seed);
    let seed = seed.to_string();
    let host = Host::start(models, &[flags, &["--seed", &seed]].concat()).await;
    let requests = mixed().expect("the requests can be read");
    let outcomes = host.all(NAME, &requests).await;
    let plain = host.all(PLAIN, &requests).await;
    for (request, (outcome, plain)) in requests.iter().zip(outcomes.iter().zip(&plain)) {
        let name = &request.name;
        assert_eq!(outcome.check(request), Ok(()), "{drafter}: {name}");
        assert_eq!(plain.check(request), Ok(()), "{drafter}, plain: {name}");
        expected.check(request, outcome);
        if request.expect == Expect::Ok {
            assert_eq!(essence(outcome), essence(plain), "{drafter}: {name}");
        }
    }
    let drafted = host.counter("drafted_tokens", NAME).await;
    let plainly = host.counter("drafted_tokens", PLAIN).await;
    assert_eq!(
        (drafted > 0.0, plainly),
        (drafter != "none", 0.0),
        "{drafter}"
    );
    if drafter == "self" {
        let accepted = host.counter("accepted_tokens", NAME).await;
        assert!(accepted > 0.5 * drafted, "{accepted} of {drafted}");
    }
    host.is_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn are_answered_as_by_generate_and_as_without_drafts() {
    for seed in [3, 1_000_003] {
        for (name, flags) in DRAFTERS {
            check(name, flags, seed).await;
        }
    }
}

/// Eight requests of different lengths, in about as many passes as one of them needs alone.
#[tokio::test(flavor = "multi_thread")]
async fn sequences_of_different_lengths_share_passes() {
    let host = Host::start(Models::tt(), &["--drafter", "ngram"]).await;
    let requests: Vec<_> = (0..8)
        .map(|at| {
            let prompt = "the rain ".repeat(at + 1);
            let request = Request::completion(&format!("{at}"), &prompt);
            let request = request.with("temperature", 1.0).with("max_tokens", 150);
            // No end token.
            request.with("logit_bias", serde_json::json!({"2": -100}))
        })
        .collect();
    let before = host.counter("passes", "").await;
    let outcomes = host.all(PLAIN, &requests).await;
    let passes = host.counter("passes", "").await - before;
    assert!(
        outcomes
            .iter()
            .all(|outcome| used(outcome, "completion_tokens") == 150)
    );
    let rounds = host.counter("rounds", PLAIN).await;
    assert_eq!(rounds, 8.0 * 149.0);
    assert!(passes < rounds / 3.0, "{passes} passes for {rounds} rounds");
}
