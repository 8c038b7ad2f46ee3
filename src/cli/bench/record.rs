//! What one run did, in full: the raw data of a result.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    TokenId,
    report::{Acceptance, Deliveries, FinishReason, RoundCount, Throughput},
};

/// What the numbers of `steps` are.
pub(super) const STEP_COLUMNS: [&str; 10] = [
    "start_us",
    "wall_us",
    "draft_us",
    "verify_us",
    "accept_us",
    "commit_us",
    "sequences",
    "rows",
    "kv_tokens",
    "feeding_prompts",
];
/// What the numbers of `rounds` are.
pub(super) const ROUND_COLUMNS: [&str; 4] = ["drafted", "levels", "accepted", "emitted"];
/// What the numbers of `deliveries` are.
pub(super) const DELIVERY_COLUMNS: [&str; 2] = ["us_since_submission", "tokens"];

/// An answer to one turn.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// Index of the conversation.
    pub(super) place: usize,
    pub(super) turn: usize,
    pub(super) name: String,
    pub(super) domain: String,
    /// Seconds since the run began.
    pub(super) submitted: f64,
    pub(super) prompt_tokens: usize,
    pub(super) tokens: Vec<TokenId>,
    pub(super) finish_reason: FinishReason,
    pub(super) deliveries: Deliveries,
    /// Rounds, and how deep their drafts were.
    pub(super) rounds: Vec<(RoundCount, usize)>,
}

impl Answer {
    pub(super) fn acceptance(&self) -> Acceptance {
        let mut acceptance = Acceptance::default();
        for (round, levels) in &self.rounds {
            acceptance.count(*round, *levels);
        }
        acceptance
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let chunks = self.deliveries.chunks().iter();
        let chunks: Vec<_> = chunks.map(|(at, tokens)| (micros(*at), *tokens)).collect();
        let rounds = self.rounds.iter();
        let rounds: Vec<_> = rounds
            .map(|(round, levels)| [round.drafted, *levels, round.accepted, round.emitted])
            .collect();
        let mut out = to.serialize_struct("request", 9)?;
        out.serialize_field("request", &self.name)?;
        out.serialize_field("domain", &self.domain)?;
        out.serialize_field("turn", &self.turn)?;
        out.serialize_field("submitted_us", &micros(self.submitted))?;
        out.serialize_field("prompt_tokens", &self.prompt_tokens)?;
        out.serialize_field("completion_tokens", &self.tokens.len())?;
        out.serialize_field("finish_reason", &self.finish_reason)?;
        out.serialize_field("deliveries", &chunks)?;
        out.serialize_field("rounds", &rounds)?;
        out.end()
    }
}

/// One step of the engine: prompts fed, and one round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    pub(super) start: f64,
    pub(super) seconds: f64,
    /// Draft, verify, accept, commit.
    pub(super) stages: [f64; 4],
    /// Sequences in the round; 0 if there was none.
    pub(super) sequences: usize,
    /// Rows of its pass.
    pub(super) rows: usize,
    /// Tokens whose keys and values its rows attend to, the round's own not counted.
    pub(super) kv_tokens: usize,
    /// A prompt was being fed.
    pub(super) feeding: bool,
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let [draft, verify, accept, commit] = self.stages.map(micros);
        let row = (
            micros(self.start),
            micros(self.seconds),
            draft,
            verify,
            accept,
            commit,
            self.sequences,
            self.rows,
            self.kv_tokens,
            u8::from(self.feeding),
        );
        row.serialize(to)
    }
}

/// Wall seconds of a run by what they went to; a pass that sequences share counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Stages {
    /// Steps that fed a prompt, less their rounds.
    pub(super) prefill: f64,
    /// Draft, verify, accept, commit.
    pub(super) rounds: [f64; 4],
    pub(super) total: f64,
}

impl Stages {
    pub(super) fn add(&mut self, other: &Self) {
        self.prefill += other.prefill;
        self.total += other.total;
        for (ours, theirs) in self.rounds.iter_mut().zip(other.rounds) {
            *ours += theirs;
        }
    }

    /// Names and seconds, `other` being what is left.
    pub(super) fn named(&self) -> [(&'static str, f64); 6] {
        let [draft, verify, accept, commit] = self.rounds;
        let known = self.prefill + self.rounds.iter().sum::<f64>();
        [
            ("prefill", self.prefill),
            ("draft", draft),
            ("verify", verify),
            ("accept", accept),
            ("commit", commit),
            ("other", (self.total - known).max(0.0)),
        ]
    }
}

/// One run of one arm.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct RunRecord {
    /// How many runs were before it at its place.
    #[serde(skip)]
    pub(super) order: usize,
    pub(super) seconds: f64,
    #[serde(rename = "requests")]
    pub(super) answers: Vec<Answer>,
    pub(super) steps: Vec<Step>,
}

impl RunRecord {
    pub(super) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    pub(super) fn throughput(&self) -> Throughput {
        Throughput {
            tokens: self.answers.iter().map(|answer| answer.tokens.len()).sum(),
            seconds: self.seconds,
        }
    }

    /// What rounds did, in the time that was not spent on prompts.
    pub(super) fn decode(&self) -> Throughput {
        let rounds = self.answers.iter().flat_map(|answer| &answer.rounds);
        Throughput {
            tokens: rounds.map(|(round, _)| round.emitted).sum(),
            seconds: self.seconds - self.stages().prefill,
        }
    }

    pub(super) fn stages(&self) -> Stages {
        let mut stages = Stages {
            total: self.seconds,
            ..Stages::default()
        };
        for step in &self.steps {
            let round: f64 = step.stages.iter().sum();
            if step.feeding {
                stages.prefill += (step.seconds - round).max(0.0);
            }
            for (sum, stage) in stages.rounds.iter_mut().zip(step.stages) {
                *sum += stage;
            }
        }
        stages
    }

    /// Tokens by conversation and turn.
    pub(super) fn outputs(&self) -> BTreeMap<(usize, usize), &[TokenId]> {
        let answers = self.answers.iter();
        answers
            .map(|answer| ((answer.place, answer.turn), answer.tokens.as_slice()))
            .collect()
    }

    /// The first answer whose tokens are not those of `plain`, in words.
    pub(super) fn difference(&self, plain: &Self) -> Option<String> {
        let expected = plain.outputs();
        for answer in &self.answers {
            let (name, ours) = (&answer.name, answer.tokens.as_slice());
            let Some(theirs) = expected.get(&(answer.place, answer.turn)) else {
                return Some(format!("request {name}: plain decoding has no such answer"));
            };
            let same = ours.iter().zip(*theirs).take_while(|(a, b)| a == b).count();
            if same < ours.len().max(theirs.len()) {
                let word = |tokens: &[TokenId]| {
                    let token = tokens.get(same);
                    token.map_or_else(|| "the end".to_owned(), ToString::to_string)
                };
                return Some(format!(
                    "request {name}: token {same} is {}, and plain decoding's is {}",
                    word(ours),
                    word(theirs)
                ));
            }
        }
        let (ours, theirs) = (self.answers.len(), expected.len());
        (ours != theirs).then(|| format!("{ours} answers, and plain decoding has {theirs}"))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "microseconds of a run, not negative"
)]
fn micros(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(place: usize, tokens: &[TokenId]) -> Answer {
        Answer {
            place,
            turn: 0,
            name: format!("r{place}"),
            domain: String::new(),
            submitted: 0.0,
            prompt_tokens: 1,
            tokens: tokens.to_vec(),
            finish_reason: FinishReason::Length,
            deliveries: Deliveries::default(),
            rounds: Vec::new(),
        }
    }

    fn run(answers: &[Answer]) -> RunRecord {
        RunRecord {
            answers: answers.to_vec(),
            ..RunRecord::default()
        }
    }

    #[test]
    fn the_first_other_token_is_named() {
        let plain = run(&[answer(0, &[1, 2, 3]), answer(1, &[4])]);
        let swapped = run(&[answer(1, &[4]), answer(0, &[1, 2, 3])]);
        assert_eq!(swapped.difference(&plain), None);
        for (answers, words) in [
            (
                &[answer(0, &[1, 9, 3]), answer(1, &[4])][..],
                "request r0: token 1 is 9, and plain decoding's is 2",
            ),
            (
                &[answer(0, &[1, 2]), answer(1, &[4])],
                "request r0: token 2 is the end, and plain decoding's is 3",
            ),
            (
                &[answer(0, &[1, 2, 3]), answer(1, &[4, 5])],
                "request r1: token 1 is 5, and plain decoding's is the end",
            ),
            (
                &[answer(0, &[1, 2, 3])],
                "1 answers, and plain decoding has 2",
            ),
            (
                &[answer(2, &[])],
                "request r2: plain decoding has no such answer",
            ),
        ] {
            assert_eq!(run(answers).difference(&plain).as_deref(), Some(words));
        }
    }

    #[test]
    fn stages_count_a_shared_pass_once_and_the_rest_is_other() {
        let step = |feeding, seconds| Step {
            seconds,
            stages: [0.1, 0.2, 0.03, 0.04],
            feeding,
            ..Step::default()
        };
        let record = RunRecord {
            seconds: 2.0,
            steps: vec![step(true, 1.0), step(false, 0.5)],
            ..RunRecord::default()
        };
        let expected = [0.63, 0.2, 0.4, 0.06, 0.08, 0.63];
        for ((name, found), expected) in record.stages().named().into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{name}: {found}");
        }
    }
}
