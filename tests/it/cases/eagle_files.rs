//! Heads in files, for targets in files: what the cases of formats begin with.

use std::{path::Path, sync::Arc};

use eyrie::{
    TokenId,
    draft::{
        Pick, Shape,
        eagle::{EagleDrafter, Head, HeadCheckpoint, HeadOptions, TargetFacts},
    },
    model::{Dtype, LoadOptions, Target, load::Checkpoint},
    request::Request,
};
use eyrie_fixtures::{Fixture, tt};
use tempfile::TempDir;

use crate::{
    eagle::network::taps,
    heads::parity::feed,
    support::{Lab, drawn, load, prompts, request},
};

/// A target that was read from files.
pub(super) struct Read {
    pub(super) target: Arc<dyn Target>,
    facts: TargetFacts,
}

impl Read {
    /// The target at `path`.
    pub(super) fn at(path: &Path, dtype: Dtype) -> Self {
        let checkpoint = Checkpoint::open(path).expect("a target");
        Self {
            facts: TargetFacts::from(checkpoint.config()),
            target: load(path, dtype, 1),
        }
    }

    pub(super) fn new(fixture: &Fixture) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        fixture.write_dir(dir.path()).expect("a target");
        Self::at(dir.path(), Dtype::AsStored)
    }

    pub(super) fn tt() -> Self {
        Self::new(&tt())
    }

    pub(super) fn open(&self, path: &Path) -> HeadCheckpoint {
        self.open_with(path, &HeadOptions::default())
    }

    pub(super) fn open_with(&self, path: &Path, options: &HeadOptions) -> HeadCheckpoint {
        let opened = HeadCheckpoint::open(path, &self.facts, options);
        opened.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The head at `path`, opened and loaded.
    pub(super) fn head(&self, path: &Path) -> Head {
        self.load(&self.open(path))
    }

    pub(super) fn load(&self, checkpoint: &HeadCheckpoint) -> Head {
        let options = LoadOptions {
            threads: Some(1),
            ..LoadOptions::default()
        };
        let head = Head::load(checkpoint, Arc::clone(&self.target), &options);
        head.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Fails unless the head at `path` is refused with these words.
    #[track_caller]
    pub(super) fn refuses(&self, path: &Path, parts: &[&str]) {
        let options = HeadOptions::default();
        let error = match HeadCheckpoint::open(path, &self.facts, &options) {
            Ok(head) => panic!("accepted as {:?}; expected {parts:?}", head.config()),
            Err(error) => error.to_string(),
        };
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }

    /// Logits of nine true rows and two drafted ones.
    pub(super) fn logits(&self, head: &Head) -> Vec<f32> {
        const TOKENS: [TokenId; 10] = [5, 9, 2, 60, 33, 9, 2, 17, 44, 8];
        let shown = taps(&self.target, &TOKENS[..9], head.taps());
        let mut cache = head.new_cache(16);
        let fed = feed(head, &mut cache, &TOKENS[1..], &head.fuse(shown));
        let mut all = fed.logits.as_slice().to_vec();
        let mut last = fed.hidden.gather([8]);
        for token in [3, 50] {
            let fed = feed(head, &mut cache, &[token], &last);
            all.extend(fed.logits.as_slice());
            last = fed.hidden;
        }
        assert!(all.iter().all(|x| x.is_finite()));
        all
    }

    /// Runs five requests with the head, greedy and not, in chains and trees. Fails unless the tokens are
    /// those of plain decoding and there were drafts. The share of accepted drafts of chains.
    #[track_caller]
    pub(super) fn runs(&self, head: Head) -> f64 {
        let head = Arc::new(head);
        let mut share = 0.0;
        for topk in [3, 1] {
            let lab = Lab::new(Arc::clone(&self.target))
                .with(|lab| lab.options.nodes = (topk > 1).then_some(9));
            let (prompts, mut requests) = (prompts(64), Vec::<Request>::new());
            requests.extend(prompts.iter().take(3).map(|prompt| request(prompt)));
            requests.extend((0..2).map(|i| drawn(&prompts[3], 1.0, i)));
            let pick = Pick::Coupled;
            let drafter = EagleDrafter::new(Arc::clone(&head), Shape { pick, topk }, 4096);
            let run = lab.run(Box::new(drafter), &requests);
            assert_eq!(run.tokens(), lab.base(&requests), "top {topk}");
            let (drafted, accepted) = run.drafted_accepted();
            assert!(drafted > 0, "top {topk}");
            let float = |n: usize| f64::from(u32::try_from(n).expect("few"));
            share = float(accepted) / float(drafted);
        }
        share
    }
}

/// The largest difference of two rows of numbers.
pub(super) fn far(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    pairs.fold(0.0, f32::max)
}
