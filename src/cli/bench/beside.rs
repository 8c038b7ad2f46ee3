//! Plain decoding and one drafter beside it on one prompt, measured as `bench` does, for who wants to show
//! both.

use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::{
    args::{BenchArgs, DrafterSpec},
    arms::{Arms, Found},
    asker,
    cells::Bench,
    chat,
    plan::Plan,
    prompts::{Asker, Conversation, Said},
    record::RunRecord,
    result::Cell,
    summary::{Ceiling, Summary},
};
use crate::{
    TokenId,
    cli::{models::Opened, progress::Busy, setup::Setup},
    model::Target,
    report::{Acceptance, RoundCount},
    schedule::Engine,
};

/// Both, loaded and measured. The tokens of every repeat were found to be equal, where that is promised.
#[derive(Debug)]
pub(in crate::cli) struct Beside {
    plan: Plan,
    arms: Arms,
    asker: Asker,
    asked: Conversation,
    cell: Cell,
}

/// One of the two.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Side<'a> {
    run: &'a RunRecord,
    summary: &'a Summary,
}

impl Beside {
    /// Loads and runs what `args` says: one drafter, one concurrency, one temperature. Its prompts are not
    /// read.
    ///
    /// # Errors
    /// A file that cannot be read, a prompt that is refused, tokens that differ.
    pub(in crate::cli) fn run(args: &BenchArgs, prompt: &str) -> Result<Self> {
        let mut plan = Plan::new(args)?;
        let found = Found::open(&mut plan)?;
        let chat = chat(&plan, &found)?;
        let arms = found.load(&mut plan)?;
        let asker = asker(&plan, &arms, chat);
        let asked = Conversation {
            id: "prompt".to_owned(),
            domain: "prompt".to_owned(),
            said: Said::Turns(vec![prompt.to_owned()]),
        };
        let bench = Bench {
            plan: &plan,
            arms: &arms,
            asker: &asker,
            conversations: std::slice::from_ref(&asked),
            busy: Busy::start("running the prompt"),
        };
        let mut outcome = bench.cells();
        drop(bench.busy);
        if let Some(error) = outcome.ended {
            return Err(error);
        }
        let measured = outcome.cells.pop().context("nothing was measured")?;
        let ceiling = Ceiling {
            weights: 0,
            kv: 0,
            bandwidth: None,
        };
        let cell = Cell::of(&plan, measured, ceiling);
        Ok(Self {
            plan,
            arms,
            asker,
            asked,
            cell,
        })
    }

    /// Plain decoding, and the drafter.
    pub(in crate::cli) fn sides(&self) -> Result<[Side<'_>; 2]> {
        let side = |at: usize| {
            let run = self.cell.runs(at).first();
            let (run, summary) = run.zip(self.cell.arms.get(at)).context("no repeat")?;
            Ok::<_, anyhow::Error>(Side { run, summary })
        };
        Ok([side(0)?, side(1)?])
    }

    /// Whether the tokens of all repeats had to be equal, and were.
    pub(in crate::cli) fn equal_tokens(&self) -> bool {
        self.cell.equal_tokens_checked
    }

    /// The prompt as the model is shown it.
    ///
    /// # Errors
    /// None that running it did not have.
    pub(in crate::cli) fn prompt(&self) -> Result<Vec<TokenId>> {
        Ok(self.asker.ask(&self.asked, 0, &[], 0.0)?.prompt)
    }

    /// The drafter's name.
    pub(in crate::cli) fn drafter(&self) -> &'static str {
        self.plan.drafters.last().map_or("none", DrafterSpec::name)
    }

    /// The drafter's settings, with what was found.
    pub(in crate::cli) fn setup(&self) -> &Setup {
        &self.plan.arms[self.plan.arms.len() - 1].setup
    }

    /// The target as it was opened.
    pub(in crate::cli) fn opened(&self) -> &Opened {
        &self.arms.opened
    }

    /// The target.
    pub(in crate::cli) fn target(&self) -> &Arc<dyn Target> {
        &self.arms.target
    }

    /// What is to be said of the files.
    pub(in crate::cli) fn warnings(&self) -> &[String] {
        &self.arms.warnings
    }

    /// A fresh engine for each side.
    pub(in crate::cli) fn engines(&self) -> Result<Vec<Engine>> {
        self.arms.engines(self.plan.rule)
    }
}

impl<'a> Side<'a> {
    /// The tokens of the answer.
    pub(in crate::cli) fn tokens(self) -> &'a [TokenId] {
        self.run
            .answers
            .first()
            .map_or(&[], |answer| &answer.tokens)
    }

    /// The rounds of the answer.
    pub(in crate::cli) fn rounds(self) -> impl Iterator<Item = RoundCount> + 'a {
        let rounds = self.run.answers.iter().flat_map(|answer| &answer.rounds);
        rounds.map(|(round, _)| *round)
    }

    pub(in crate::cli) fn acceptance(self) -> &'a Acceptance {
        &self.summary.acceptance
    }

    pub(in crate::cli) fn tokens_per_s(self) -> Option<f64> {
        self.summary.tokens_per_s
    }

    /// In words: faster, slower, or not told apart from plain decoding; none for plain decoding itself.
    pub(in crate::cli) fn verdict(self) -> Option<&'a str> {
        self.summary.verdict.as_deref()
    }

    /// Share of the time by stage.
    pub(in crate::cli) fn stages(self) -> &'a Map<String, Value> {
        &self.summary.stage_share
    }

    /// All numbers, with the tokens of the answer.
    pub(in crate::cli) fn json(self) -> Value {
        let mut object = json!(self.summary);
        object["tokens"] = json!(self.tokens());
        object
    }
}
