//! A drafter that drafts with a head, or plants drafts of its own in place of the head's, and compares
//! what the head knows with what a fresh one would, whenever that changes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use eyrie::{
    SeqId, TokenId,
    draft::{
        Anchor, Drafter, Seen,
        eagle::{EagleDrafter, HeadState},
    },
    error::Result,
    model::Target,
    tree::DraftTree,
};

use super::{heads::Made, network::taps};

/// Which drafts are proposed.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// The head's.
    Own,
    /// The head's, but none in these rounds.
    Pause(std::ops::Range<usize>),
    /// In round r, the first r (modulo depth + 1) of a chain are right; what follows a prompt is known.
    Chain(Vec<Vec<TokenId>>),
    /// As a chain, with a wrong sibling before each right node, which has a child too.
    Tree(Vec<Vec<TokenId>>),
}

/// What a [`Probe`] found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// States compared.
    pub(crate) compared: AtomicUsize,
    /// Sequences that the head did not draft for although it was shown them.
    pub(crate) unknown: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) inner: EagleDrafter,
    pub(crate) made: Made,
    pub(crate) target: Arc<dyn Target>,
    pub(crate) plan: Plan,
    pub(crate) found: Arc<Found>,
}

impl Probe {
    pub(crate) fn new(made: &Made, target: &Arc<dyn Target>, topk: usize, plan: Plan) -> Self {
        Self {
            inner: made.drafter(target, topk, 2048),
            made: made.clone(),
            target: Arc::clone(target),
            plan,
            found: Arc::new(Found::default()),
        }
    }
}

/// What a head knows of `tokens` that it was shown at once.
pub(crate) fn fresh(
    made: &Made,
    target: &Arc<dyn Target>,
    tokens: &[TokenId],
) -> Option<HeadState> {
    let mut drafter = made.drafter(target, 1, 512);
    let taps = taps(target, tokens, drafter.taps());
    let seen = Seen {
        seq: SeqId(1),
        tokens,
        taps: Some(&taps),
    };
    drafter.observe(&[seen]).expect("it works");
    drafter.state(SeqId(1)).expect("it works")
}

impl Drafter for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn taps(&self) -> &[usize] {
        self.inner.taps()
    }

    fn observe(&mut self, seen: &[Seen<'_>]) -> Result<()> {
        self.inner.observe(seen)?;
        for one in seen {
            let state = self.inner.state(one.seq)?;
            let expected = fresh(&self.made, &self.target, one.tokens);
            assert_eq!(state, expected, "after {} tokens", one.tokens.len());
            match state {
                Some(_) => self.found.compared.fetch_add(1, Ordering::Relaxed),
                None => self.found.unknown.fetch_add(1, Ordering::Relaxed),
            };
        }
        Ok(())
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        if let Plan::Pause(rounds) = &self.plan
            && anchors.iter().any(|anchor| rounds.contains(&anchor.round))
        {
            return Ok(());
        }
        self.inner.propose(anchors, trees)?;
        let (known, tree) = match &self.plan {
            Plan::Own | Plan::Pause(_) => return Ok(()),
            Plan::Chain(known) => (known, false),
            Plan::Tree(known) => (known, true),
        };
        for (anchor, planted) in anchors.iter().zip(trees) {
            let whole = known.iter().find(|known| known.starts_with(anchor.tokens));
            let future = &whole.expect("the prompt is known")[anchor.tokens.len()..];
            *planted = DraftTree::new();
            let right = anchor.round % (anchor.depth + 1);
            let mut above = None;
            for (level, token) in future.iter().take(anchor.depth).enumerate() {
                let wrong = (token + 1) % 64;
                if tree {
                    let sibling = planted.point(above, wrong)?;
                    planted.point(Some(sibling), *token)?;
                }
                let token = if level < right { *token } else { wrong };
                above = Some(planted.point(above, token)?);
            }
        }
        Ok(())
    }

    fn fork(&mut self, from: SeqId, to: SeqId) {
        self.inner.fork(from, to);
    }

    fn forget(&mut self, seq: SeqId) {
        self.inner.forget(seq);
    }
}
