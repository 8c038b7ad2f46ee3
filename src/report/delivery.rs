//! When tokens arrive: time to the first, time per token, gaps, percentiles.
//!
//! A pass may deliver several tokens at once. Time per token goes by tokens; what passes between two
//! deliveries is the chunk gap, another number. The first delivery ends the reading of the prompt:
//! neither its time nor its tokens are part of the rates of decoding.

use serde::Serialize;

/// The definitions in words, for whoever reads a result.
pub const TIMING: &str = "A delivery is when a step of the engine returned with tokens of a request: the first, which \
ends ttft_s, brings the tokens of the request's first round too. tpot_s = seconds after the first delivery / tokens \
after it, of all requests together; chunk_gap_s = the same seconds / deliveries. tokens_per_s is over the wall time \
of whole runs, prompts included; round_tokens_per_s is the tokens of rounds over that time less what steps that fed \
prompts took outside of their round (prefill). Percentiles are by nearest rank over the requests of all repeats. A \
speed-up is a ratio of sums; its 95 % interval is Student's on the logarithms of the ratios of paired repeats.";

/// The deliveries of one request: seconds since it was submitted, and tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deliveries {
    chunks: Vec<(f64, usize)>,
}

impl Deliveries {
    /// `tokens` arrived at `seconds`, not before those that came last.
    pub fn push(&mut self, seconds: f64, tokens: usize) {
        if tokens > 0 {
            self.chunks.push((seconds, tokens));
        }
    }

    /// What arrived when.
    #[must_use]
    pub fn chunks(&self) -> &[(f64, usize)] {
        &self.chunks
    }

    /// Seconds until the first token arrived.
    #[must_use]
    pub fn first(&self) -> Option<f64> {
        self.chunks.first().map(|(at, _)| *at)
    }

    /// Seconds until the last one did.
    #[must_use]
    pub fn last(&self) -> Option<f64> {
        self.chunks.last().map(|(at, _)| *at)
    }

    /// The request's pace once its first tokens were there.
    #[must_use]
    pub fn pace(&self) -> Pace {
        let (Some(first), Some(last)) = (self.first(), self.last()) else {
            return Pace::default();
        };
        Pace {
            tokens: self.chunks[1..].iter().map(|(_, tokens)| tokens).sum(),
            gaps: self.chunks.len() - 1,
            seconds: last - first,
        }
    }
}

/// Sums over what came after the first delivery of each request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    tokens: usize,
    gaps: usize,
    seconds: f64,
}

impl Pace {
    /// Adds another request's.
    pub fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.gaps += other.gaps;
        self.seconds += other.seconds;
    }

    /// Seconds per token (TPOT).
    #[must_use]
    pub fn per_token(&self) -> Option<f64> {
        over(self.seconds, self.tokens)
    }

    /// Mean seconds between deliveries.
    #[must_use]
    pub fn chunk_gap(&self) -> Option<f64> {
        over(self.seconds, self.gaps)
    }

    /// Tokens per second of one request, without its prompt.
    #[must_use]
    pub fn decode_rate(&self) -> Option<f64> {
        self.per_token()
            .filter(|per_token| *per_token > 0.0)
            .map(f64::recip)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn over(seconds: f64, count: usize) -> Option<f64> {
    (count > 0).then(|| seconds / count as f64)
}

/// Two percentiles by nearest rank: values that were seen, the smallest that enough are not above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// The median; none of nothing.
    pub p50: Option<f64>,
    /// The 99th.
    pub p99: Option<f64>,
}

impl Percentiles {
    /// Of `values`, in any order.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100);
            values.get(rank.checked_sub(1)?).copied()
        };
        Self {
            p50: at(50),
            p99: at(99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_by_nearest_rank() {
        let of = |n: u32| Percentiles::of((1..=n).rev().map(f64::from).collect());
        assert_eq!(of(0), Percentiles::default());
        for (n, p50, p99) in [
            (1, 1.0, 1.0),
            (2, 1.0, 2.0),
            (100, 50.0, 99.0),
            (101, 51.0, 100.0),
        ] {
            let (p50, p99) = (Some(p50), Some(p99));
            assert_eq!(of(n), Percentiles { p50, p99 }, "{n}");
        }
    }

    #[test]
    fn a_request_of_one_delivery_has_no_pace() {
        let mut one = Deliveries::default();
        assert_eq!(one.pace().per_token(), None);
        one.push(0.5, 3);
        one.push(0.6, 0);
        assert_eq!((one.first(), one.last()), (Some(0.5), Some(0.5)));
        assert_eq!(one.pace().per_token(), None);
        assert_eq!(one.pace().chunk_gap(), None);
        assert_eq!(one.pace().decode_rate(), None);
    }

    #[test]
    fn paces_are_added_by_sums() {
        let mut fast = Deliveries::default();
        let mut slow = Deliveries::default();
        (0..11).for_each(|i| fast.push(f64::from(i) * 0.01, 1));
        (0..2).for_each(|i| slow.push(f64::from(i) * 0.9, 1));
        let mut all = fast.pace();
        all.add(slow.pace());
        let per_token = all.per_token().expect("there are tokens");
        assert!((per_token - 1.0 / 11.0).abs() < 1e-12, "{per_token}");
    }
}
