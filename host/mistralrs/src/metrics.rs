//! Counters for Prometheus.

use std::{fmt, sync::atomic::AtomicU64, time::Duration};

use eyrie::report::{RoundTrace, StageMillis};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

type Seconds = Counter<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct At {
    model: String,
    position: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Spent {
    stage: &'static str,
}

/// What the pipelines of a loader, or of several that share it, did since it was made, for `/metrics`.
pub struct Metrics {
    registry: Registry,
    requests: Family<Of, Counter>,
    tokens: Family<Of, Counter>,
    rounds: Family<Of, Counter>,
    drafted: Family<Of, Counter>,
    accepted: Family<Of, Counter>,
    drafted_at: Family<At, Counter>,
    accepted_at: Family<At, Counter>,
    passes: Counter,
    seconds: Family<Spent, Seconds>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("eyrie");
        macro_rules! family {
            ($name:literal, $help:literal) => {{
                let family = Family::default();
                registry.register($name, $help, family.clone());
                family
            }};
        }
        let passes = Counter::default();
        let help = "Passes of the engine, all sequences together";
        registry.register("passes", help, passes.clone());
        Self {
            passes,
            requests: family!("choices", "Choices that were begun"),
            tokens: family!("tokens", "Tokens delivered"),
            rounds: family!(
                "rounds",
                "Passes of the target after the prompt's, by choice"
            ),
            drafted: family!("drafted_tokens", "Tokens drafted, all nodes of a tree"),
            accepted: family!("accepted_tokens", "Drafts that were kept and delivered"),
            drafted_at: family!(
                "drafted_rounds",
                "Rounds with a draft at a position, from 0"
            ),
            accepted_at: family!(
                "accepted_rounds",
                "Rounds whose draft at a position was kept, from 0"
            ),
            seconds: family!(
                "stage_seconds",
                "Wall seconds of the engine by stage; prefill: all that is no round"
            ),
            registry,
        }
    }
}

impl Metrics {
    /// The counters in the OpenMetrics text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => unreachable!("a string takes all text: {error}"),
        }
    }

    pub(crate) fn begun(&self, model: &str) {
        self.requests.get_or_create(&of(model)).inc();
    }

    /// A token that is delivered: the one at `index` of its round, if it comes from one.
    pub(crate) fn token(&self, model: &str, round: Option<(&RoundTrace, usize)>) {
        self.tokens.get_or_create(&of(model)).inc();
        let Some((round, index)) = round else {
            return;
        };
        let mut one = mistralrs_core::SpeculativeUsage::default();
        crate::counters::count(&mut one, round, index);
        let add = |family: &Family<Of, Counter>, n: usize| {
            family.get_or_create(&of(model)).inc_by(n as u64);
        };
        add(&self.rounds, one.rounds);
        add(&self.drafted, one.drafted);
        add(&self.accepted, one.accepted);
        let add = |family: &Family<At, Counter>, counts: &[usize]| {
            for (position, &n) in (0..).zip(counts) {
                let model = model.to_owned();
                family
                    .get_or_create(&At { model, position })
                    .inc_by(n as u64);
            }
        };
        add(&self.drafted_at, &one.drafted_by_position);
        add(&self.accepted_at, &one.accepted_by_position);
    }

    /// A step of the engine that took `all`, of which its round `stages`.
    pub(crate) fn pass(&self, all: Duration, stages: Option<StageMillis>) {
        self.passes.inc();
        let ms = stages.unwrap_or_default();
        let rounds = ms.draft + ms.verify + ms.accept + ms.commit;
        for (stage, ms) in [
            ("prefill", (all.as_secs_f64() * 1e3 - rounds).max(0.0)),
            ("draft", ms.draft),
            ("verify", ms.verify),
            ("accept", ms.accept),
            ("commit", ms.commit),
        ] {
            self.seconds
                .get_or_create(&Spent { stage })
                .inc_by(ms / 1e3);
        }
    }
}

fn of(model: &str) -> Of {
    Of {
        model: model.to_owned(),
    }
}
