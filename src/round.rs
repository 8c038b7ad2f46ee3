//! The round: draft, verify, accept, commit, once, for a batch.

use std::time::Instant;

use crate::{
    accept::Rule,
    cache::KvCache,
    commit::{self, Outcome},
    draft::{self, Drafter, Plan},
    error::Result,
    model::Target,
    report::{Stage, StageMillis},
    sequence::Sequence,
    verify::{RowLaws, Verified, verify},
};

/// What decides a round.
#[derive(Debug)]
pub struct Players<'a> {
    /// Whose law is reproduced.
    pub target: &'a dyn Target,
    /// Who guesses.
    pub drafter: &'a mut dyn Drafter,
    /// Which guesses survive.
    pub rule: &'a dyn Rule,
}

/// Takes every sequence through one round with drafts within `plan`, smaller where the cache has less
/// room. `None`: it has none for a row of each, and nothing changed.
///
/// Before and after: `cache.committed(seq) + 1 == seq.tokens().len()` for every sequence that goes on.
///
/// # Errors
/// If the target's pass fails; nothing was committed or delivered then.
pub fn round(
    players: &mut Players<'_>,
    cache: &mut KvCache,
    seqs: &mut [Sequence],
    plan: Plan,
) -> Result<Option<Vec<Outcome>>> {
    let mut ms = StageMillis::default();
    let mut clock = Instant::now();

    let plan = plan.affordable(seqs, cache.free());
    let trees = draft::propose(players.drafter, seqs, plan);
    ms.draft = lap(&mut clock, seqs, Stage::Draft);

    let taps = players.drafter.taps();
    let Some(verified) = verify(players.target, cache, seqs, &trees, taps)? else {
        return Ok(None);
    };
    let Verified {
        logits,
        taps,
        pack,
        mut txn,
    } = verified;
    ms.verify = lap(&mut clock, seqs, Stage::Verify);

    let mut decided = Vec::with_capacity(seqs.len());
    for (i, (seq, tree)) in seqs.iter().zip(&trees).enumerate() {
        let mut rows = RowLaws::new(&logits, &pack, i, tree, seq);
        let first = seq.output().len() as u64;
        let verdict = players
            .rule
            .decide(tree, &mut rows, first, &mut seq.draws.clone());
        decided.push(rows.logprobs(verdict));
    }
    ms.accept = lap(&mut clock, seqs, Stage::Accept);

    let mut outcomes = Vec::with_capacity(seqs.len());
    let mut kept_taps = Vec::with_capacity(seqs.len());
    for (i, ((seq, tree), (verdict, logprobs))) in
        seqs.iter_mut().zip(&trees).zip(decided).enumerate()
    {
        let kept = pack.kept(i, &verdict.path);
        txn.commit(seq.id, &kept)?;
        outcomes.push(commit::deliver(seq, tree, &verdict, logprobs));
        kept_taps.extend(
            taps.as_ref()
                .map(|taps| taps.gather(pack.rows_of(i, &kept))),
        );
    }
    draft::refresh(players.drafter, seqs, &kept_taps);
    ms.commit = lap(&mut clock, seqs, Stage::Commit);
    for outcome in &mut outcomes {
        outcome.trace.ms = ms;
    }
    Ok(Some(outcomes))
}

/// Charges the time since the last lap to `stage` of every sequence; returns it in milliseconds.
fn lap(clock: &mut Instant, seqs: &mut [Sequence], stage: Stage) -> f64 {
    let time = clock.elapsed();
    *clock = Instant::now();
    for seq in seqs {
        seq.timing.add(stage, time);
    }
    time.as_secs_f64() * 1e3
}
