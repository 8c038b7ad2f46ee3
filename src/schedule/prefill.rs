//! Prompts, fed chunk by chunk.

use std::{sync::Arc, time::Instant};

use super::group::Group;
use crate::{
    Matrix, SeqId, TokenId,
    cache::{KvCache, Txn},
    draft::{self, Drafter, Seen},
    error::Result,
    model::{Rows, Target, Wanted},
    report::Stage,
    sequence::{Sequence, Shared},
};

/// Something that has tokens to be fed before it can go through rounds.
#[derive(Debug)]
pub(super) enum Task {
    /// A request at its prompt.
    Fresh(Group),
    /// A choice that lost its rows: all its tokens but the anchor.
    Resumed(Box<Sequence>),
}

impl Task {
    /// The sequence whose rows are fed.
    pub(super) fn seq(&self) -> SeqId {
        match self {
            Self::Fresh(group) => group.parent,
            Self::Resumed(seq) => seq.id,
        }
    }

    /// The tokens to be fed.
    pub(super) fn tokens(&self) -> &[TokenId] {
        match self {
            Self::Fresh(group) => &group.shared.request.prompt,
            Self::Resumed(seq) => &seq.tokens()[..seq.tokens().len() - 1],
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        match self {
            Self::Fresh(group) => &group.shared,
            Self::Resumed(seq) => seq.shared(),
        }
    }
}

/// Feeds the next `chunk` tokens of every task, in one pass, and shows them to the drafter. `None`:
/// no room in the cache now, nothing changed.
///
/// # Errors
/// If the target's pass fails; nothing was committed then.
pub(super) fn prefill(
    target: &dyn Target,
    drafter: &mut dyn Drafter,
    cache: &mut KvCache,
    tasks: &mut [Task],
    chunk: usize,
) -> Result<Option<()>> {
    let clock = Instant::now();
    let mut rows = Rows::default();
    for task in &*tasks {
        let (base, tokens) = (cache.committed(task.seq()), task.tokens());
        let next = &tokens[base..tokens.len().min(base + chunk)];
        let last = base + next.len() == tokens.len();
        let wanted = match task {
            Task::Fresh(_) if last => Wanted::Last,
            _ => Wanted::None,
        };
        rows.chain(task.seq(), base, next, wanted)?;
    }
    let Some(mut txn) = Txn::begin(cache, &rows.want()) else {
        return Ok(None);
    };
    let out = target.forward(&rows, &mut txn, drafter.taps())?;
    for task in &*tasks {
        txn.commit_all(task.seq())?;
    }
    drop(txn);
    let mut answers = 0;
    for task in &mut *tasks {
        if let (true, Task::Fresh(group)) = (fed(task, cache), task) {
            group.logits = out.logits.row(answers).to_vec();
            answers += 1;
        }
    }
    observe(drafter, cache, tasks, &rows, out.taps.as_ref());
    for task in tasks {
        match task {
            Task::Fresh(group) => group.prefill += clock.elapsed(),
            Task::Resumed(seq) => seq.timing.add(Stage::Prefill, clock.elapsed()),
        }
    }
    Ok(Some(()))
}

/// True once all its tokens are in the cache.
pub(super) fn fed(task: &Task, cache: &KvCache) -> bool {
    cache.committed(task.seq()) == task.tokens().len()
}

/// Shows the drafter what was fed. Choices whose rows are fed again are shown only for their taps:
/// without, a drafter catches up by the tokens.
fn observe(
    drafter: &mut dyn Drafter,
    cache: &KvCache,
    tasks: &[Task],
    rows: &Rows,
    taps: Option<&Matrix>,
) {
    let drafted_for = |task: &Task| {
        let request = &task.shared().request;
        let new = taps.is_some() || matches!(task, Task::Fresh(_));
        new && !request.drafter_off && request.max_tokens > 1
    };
    let pairs = tasks.iter().zip(rows.spans());
    let fed: Vec<_> = pairs
        .filter(|(task, _)| drafted_for(task))
        .map(|(task, span)| (task, taps.map(|taps| taps.gather(span.rows.clone()))))
        .collect();
    let seen = fed.iter().map(|(task, taps)| Seen {
        seq: task.seq(),
        tokens: &task.tokens()[..cache.committed(task.seq())],
        taps: taps.as_ref(),
    });
    draft::show(drafter, &seen.collect::<Vec<_>>());
}
