//! `eyrie judge`: the output law of this build on a model, as a table and a verdict.

use std::{io::Write, time::Instant};

use anyhow::{Context, Result};
use rayon::ThreadPoolBuilder;
use serde::Serialize;
use serde_json::json;

use super::{
    args::{DrafterKind, JudgeArgs, PickKind, RuleKind},
    error::Unwritable,
    models::{Loaded, Models, Opened},
    progress::Busy,
    setup::Setup,
};
use crate::{
    TokenId,
    judge::{Finding, Honest, Judgement, Kind, Live, Settings, Subject, judge},
};

/// What the model given goes on from, if it has a tokenizer.
const TEXTS: [&str; 8] = [
    "The capital of France is",
    "Once upon a time there was a lighthouse keeper who",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "one two three four one two three four one two",
    "Q: Why is the sky blue?\nA:",
    "Ingredients: 200 g flour, 2 eggs, 100 g sugar. Method: mix the flour",
    "Dear Sir or Madam, I am writing to you because",
    "3 + 4 = 7\n5 + 6 = 11\n8 + 9 =",
];

/// The configuration of a judgement. Every flag shows in it.
#[derive(Clone, Debug, Serialize)]
struct Config {
    version: &'static str,
    #[serde(flatten)]
    setup: Setup,
    rule: Vec<RuleKind>,
    seed: u64,
    alpha: f64,
    tv: f64,
    samples: u32,
    json: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    mutant: Option<String>,
}

/// Runs the command; the exit status.
pub(super) fn run(args: &JudgeArgs) -> Result<u8> {
    let all = [RuleKind::Match, RuleKind::Rejection, RuleKind::Block];
    let rules = args.rule.map_or_else(|| all.to_vec(), |rule| vec![rule]);
    let (subject, mutant) = subject(args)?;
    let mut config = Config {
        version: env!("CARGO_PKG_VERSION"),
        setup: Setup::new(&args.setup, &rules, DrafterKind::Ngram)?,
        rule: rules,
        seed: args.seed,
        alpha: args.alpha,
        tv: args.tv,
        samples: args.samples,
        json: args.json,
        mutant,
    };
    let models = Models::open(&mut config.setup)?;
    models.warn();
    if args.print_config {
        models.measure(&mut config.setup)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string_pretty(&config)?).map_err(Unwritable)?;
        return Ok(0);
    }
    let pool = ThreadPoolBuilder::new().num_threads(config.setup.threads);
    // A second command in one process keeps the first one's threads.
    let _ = pool.build_global();
    let begin = Instant::now();
    let loaded = models.load(&config.setup)?;
    config.setup.measured(loaded.target.row_invariant());
    let judgement = judged(&config, &models, &loaded, subject.as_ref())?;
    let seconds = begin.elapsed().as_secs_f64();
    let mut out = std::io::stdout().lock();
    let written = if config.json {
        let object = json!({
            "verdict": judgement.verdict.name(),
            "alpha": config.alpha,
            "seed": config.seed,
            "seconds": seconds,
            "config": config,
            "rows": judgement.findings,
        });
        writeln!(out, "{object}")
    } else {
        table(&mut out, &judgement.findings).and_then(|()| {
            let (verdict, alpha, seed) = (judgement.verdict, config.alpha, config.seed);
            writeln!(
                out,
                "{verdict} (alpha {alpha:e}, seed {seed}, {seconds:.1} s)"
            )
        })
    };
    written.and_then(|()| out.flush()).map_err(Unwritable)?;
    Ok(judgement.verdict.exit())
}

#[cfg(feature = "mutants")]
fn subject(args: &JudgeArgs) -> Result<(Box<dyn Subject>, Option<String>)> {
    use crate::mutant::Mutant;

    let Some(name) = &args.mutant else {
        return Ok((Box::new(Honest), None));
    };
    let Some(mutant) = Mutant::from_name(name) else {
        let names = Mutant::ALL.map(Mutant::name).join(", ");
        return super::error::usage("--mutant", format!("{name}: accepted are {names}"));
    };
    Ok((Box::new(mutant), Some(name.clone())))
}

#[cfg(not(feature = "mutants"))]
#[expect(
    clippy::unnecessary_wraps,
    reason = "a build with broken variants may refuse a name"
)]
fn subject(_: &JudgeArgs) -> Result<(Box<dyn Subject>, Option<String>)> {
    Ok((Box::new(Honest), None))
}

fn judged(
    config: &Config,
    models: &Models,
    loaded: &Loaded,
    subject: &dyn Subject,
) -> Result<Judgement> {
    let pick = config.setup.pick.unwrap_or(PickKind::Coupled);
    let live = Live {
        target: std::sync::Arc::clone(&loaded.target),
        drafts: config.setup.drafter != DrafterKind::None,
        drafter: &|pick| Ok(loaded.drafter(pick)),
        pick: pick.into(),
        valid: models.target.valid(),
        options: config.setup.options(models.kv_tokens),
        prompts: prompts(&models.target)?,
    };
    let settings = Settings {
        alpha: config.alpha,
        tv: config.tv,
        seed: config.seed,
        samples: config.samples as usize,
        rules: config.rule.iter().copied().map(Kind::from).collect(),
    };
    let busy = Busy::start("judging");
    let mut progress = |done, all| busy.reached(done, all);
    Ok(judge(subject, &live, &settings, &mut progress)?)
}

/// The texts as tokens; none without a tokenizer.
fn prompts(target: &Opened) -> Result<Vec<Vec<TokenId>>> {
    let Some(tokenizer) = &target.tokenizer else {
        return Ok(Vec::new());
    };
    let encode = |text: &&str| tokenizer.encode_prompt(text);
    let prompts: Result<Vec<_>, _> = TEXTS.iter().map(encode).collect();
    let mut prompts = prompts.context("--model")?;
    prompts.retain(|prompt| !prompt.is_empty());
    Ok(prompts)
}

fn table(out: &mut dyn Write, findings: &[Finding]) -> std::io::Result<()> {
    let wide = findings.iter().map(|finding| finding.name.chars().count());
    let wide = wide.max().unwrap_or_default();
    let heads = ["samples", "statistic", "p (Holm)", "TV seen"];
    let [samples, statistic, p, tv] = heads;
    write!(out, "{:<8}{:<wide$}", "section", "judged")?;
    writeln!(out, "{samples:>9}{statistic:>12}{p:>11}{tv:>9}  verdict")?;
    let number = |x: Option<f64>, form: fn(f64) -> String| x.map_or_else(|| "-".to_owned(), form);
    for finding in findings {
        let section = json!(finding.section);
        let section = section.as_str().unwrap_or_default();
        let statistic = number(finding.statistic, |x| match x {
            x if x != 0.0 && x < 1e-3 => format!("{x:.1e}"),
            x => format!("{x:.3}"),
        });
        let p = number(finding.p_value, |p| format!("{p:.2e}"));
        let tv = number(finding.excluded_tv, |tv| format!("{tv:.4}"));
        let (name, samples, verdict) = (&finding.name, finding.samples, finding.verdict);
        write!(
            out,
            "{section:<8}{name:<wide$}{samples:>9}{statistic:>12}{p:>11}{tv:>9}"
        )?;
        writeln!(out, "  {verdict:<10}{}", finding.note)?;
    }
    Ok(())
}

impl From<RuleKind> for Kind {
    fn from(rule: RuleKind) -> Self {
        match rule {
            RuleKind::Match => Self::Match,
            RuleKind::Rejection => Self::Rejection,
            RuleKind::Block => Self::Block,
        }
    }
}
