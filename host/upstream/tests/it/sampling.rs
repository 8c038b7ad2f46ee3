//! Defects of sampling: what a request asks for and does not get.

use anyhow::{Context, Result};
use eyrie_host_client::{Choice, Client, Request, TokenLogprob};
use upstream_mistralrs::{Host, PrefixCache};

use crate::mended;

/// The only choice of `request`'s answer.
async fn choice(client: &Client, request: &Request) -> Result<Choice> {
    let outcome = client.send("default", request).await;
    outcome.check(request).map_err(anyhow::Error::msg)?;
    let mut choices = outcome.choices.into_iter();
    choices.next().context("no choice")
}

fn greedy() -> Request {
    Request::completion("greedy", "the rain in")
        .with("max_tokens", 20)
        .with("temperature", 0)
}

/// Compared: a greedy text with and without a bias that makes every token a `z`.
#[tokio::test(flavor = "multi_thread")]
async fn a_logit_bias_is_ignored() -> Result<()> {
    let host = Host::start(PrefixCache::Off).await?;
    let client = host.client()?;
    let plain = choice(&client, &greedy()).await?.text;
    let biased = greedy().with("logit_bias", serde_json::json!({"29": 100}));
    let biased = choice(&client, &biased).await?.text;
    assert_eq!(biased, plain, "{}", mended("the logit bias"));
    assert!(!plain.contains("zz"));
    Ok(())
}

/// With a min-p of .999 only the likeliest token is left. Compared: the greedy text with that of min-p
/// alone, and of min-p beside a top-p that keeps all.
#[tokio::test(flavor = "multi_thread")]
async fn min_p_is_ignored_without_top_p() -> Result<()> {
    let host = Host::start(PrefixCache::Off).await?;
    let client = host.client()?;
    let plain = choice(&client, &greedy()).await?.text;
    let alone = greedy().with("temperature", 1.3).with("min_p", 0.999);
    let beside = alone.clone().with("top_p", 0.999);
    assert_eq!(choice(&client, &beside).await?.text, plain);
    let alone = choice(&client, &alone).await?.text;
    assert_ne!(alone, plain, "{}", mended("min-p without top-p"));
    Ok(())
}

/// All 60 log probabilities of the first token.
async fn logprobs(temperature: f64) -> Result<TokenLogprob> {
    let host = Host::start(PrefixCache::Off).await?;
    let request = Request::completion("all", "the rain in")
        .with("max_tokens", 1)
        .with("temperature", temperature)
        .with("logprobs", 60);
    let choice = choice(&host.client()?, &request).await?;
    choice.logprobs.into_iter().next().context("no token")
}

/// Compared: which base makes the probabilities of all tokens sum to 1.
#[tokio::test(flavor = "multi_thread")]
async fn log_probabilities_are_to_base_ten() -> Result<()> {
    let token = logprobs(1.0).await?;
    assert_eq!(token.top.len(), 60);
    let sum = |base: f64| -> f64 {
        let powers = token
            .top
            .iter()
            .flat_map(|(_, logprob)| logprob.map(|l| base.powf(l)));
        powers.sum()
    };
    let (ten, natural) = (sum(10.0), sum(std::f64::consts::E));
    let wrong = (ten - 1.0).abs() < 1e-3 && (natural - 1.0).abs() > 0.1;
    assert!(
        wrong,
        "{}: {ten} {natural}",
        mended("the base of log probabilities")
    );
    Ok(())
}

/// At temperature 0 they are logarithms of the logits themselves: positive for a logit above 1, and no
/// number, which JSON writes as null, for a negative one.
#[tokio::test(flavor = "multi_thread")]
async fn log_probabilities_at_temperature_zero_are_of_raw_logits() -> Result<()> {
    let token = logprobs(0.0).await?;
    let wrong =
        token.logprob.is_some_and(|l| l > 0.0) && token.top.iter().any(|(_, l)| l.is_none());
    assert!(
        wrong,
        "{}: {token:?}",
        mended("log probabilities at temperature 0")
    );
    Ok(())
}
