//! From flags to an engine in another program.

use clap::Parser;
use eyrie::{
    cli::{DrafterKind, RuleKind, SetupArgs, Usage, prepare},
    request::RequestSpec,
    schedule::Engine,
};

use super::{file, on_tt};
use crate::support::finish;

/// Another program's flags.
#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    setup: SetupArgs,
    #[arg(long)]
    port: u16,
}

fn flags(args: &[&str]) -> SetupArgs {
    let path = |arg: &&str| match arg.strip_prefix('@') {
        Some(name) => file(name).display().to_string(),
        None => (*arg).to_owned(),
    };
    let all = ["program", "--model", "@tt", "--port", "1", "--threads", "1"];
    let all = all.iter().chain(args).map(path);
    let flags = Flags::try_parse_from(all).expect("flags");
    assert_eq!(flags.port, 1);
    flags.setup
}

#[test]
fn the_engine_is_generates() {
    for drafter in [
        &[][..],
        &["--draft", "@td", "--depth", "3"],
        &["--draft", "@e3"],
    ] {
        let prepared = prepare(&flags(drafter), RuleKind::Match).expect("models");
        assert_eq!(
            prepared.setup.drafter == DrafterKind::None,
            drafter.is_empty()
        );
        assert_eq!(prepared.setup.kv_tokens, Some(prepared.options.kv_tokens));
        assert_eq!(prepared.resolver.valid, prepared.parts.valid);
        let spec = RequestSpec {
            prompt: Some("the cat".to_owned()),
            max_tokens: 20,
            ..RequestSpec::default()
        };
        let request = prepared.resolver.resolve(&spec, "1", 5).expect("a request");
        let mut engine = Engine::new(prepared.parts, prepared.options).expect("an engine");
        engine.submit(request).expect("it fits");
        let run = finish(&mut engine);
        let args = ["--prompt", "the cat", "--max-tokens", "20", "--seed", "5"];
        let result = on_tt(&[&args, drafter].concat()).result();
        assert_eq!(serde_json::json!(run.tokens()[0]), result["tokens"]);
        let rounds = &run.choices[0].rounds;
        assert_eq!(serde_json::json!(rounds), result["rounds"]);
    }
}

/// What `generate` says on stderr is kept, and what it refuses is refused.
#[test]
fn warnings_are_kept_and_wrong_usage_is_an_error() {
    let prepared = prepare(&flags(&["--draft", "@e3"]), RuleKind::Match).expect("models");
    let args = ["--prompt", "the", "--max-tokens", "1", "--draft", "@e3"];
    let said = on_tt(&args).err;
    let said: Vec<_> = said.lines().collect();
    let kept = prepared
        .warnings
        .iter()
        .map(|text| format!("warning: {text}"));
    assert_eq!(said, kept.collect::<Vec<_>>());
    let wrong = flags(&["--drafter", "ngram", "--tree", "2x2x4"]);
    let error = prepare(&wrong, RuleKind::Match).expect_err("no trees");
    assert!(error.downcast_ref::<Usage>().is_some(), "{error}");
    let error = prepare(&flags(&["--draft", "@nowhere"]), RuleKind::Match).expect_err("no file");
    assert!(error.downcast_ref::<Usage>().is_none(), "{error}");
}
