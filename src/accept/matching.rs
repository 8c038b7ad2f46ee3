//! The rule `match`.

use super::{Rule, TargetRows, Verdict, sealed::Sealed};
use crate::{
    sample::{Draws, choose},
    tree::DraftTree,
};

/// The rule `match`: the target chooses at each row, and a draft survives if it is what was chosen.
///
/// Of two children with the chosen token the lower node is taken. See the
/// [module](crate::accept) for why this keeps the trajectory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Match;

impl Sealed for Match {}

impl Rule for Match {
    fn name(&self) -> &'static str {
        "match"
    }

    fn decide(
        &self,
        tree: &DraftTree,
        rows: &mut dyn TargetRows,
        first: u64,
        draws: &mut dyn Draws,
    ) -> Verdict {
        let (mut path, mut at) = (Vec::new(), None);
        for t in first.. {
            let next = match rows.law(at) {
                Ok(law) => choose(&law, t, draws),
                Err(fault) => {
                    return Verdict {
                        path,
                        next: Err(fault),
                    };
                }
            };
            at = tree.children(at).find(|&child| tree.token(child) == next);
            match at {
                Some(child) => path.push(child),
                None => {
                    return Verdict {
                        path,
                        next: Ok(next),
                    };
                }
            }
        }
        unreachable!("a tree is finite, and every turn goes one level down")
    }
}
