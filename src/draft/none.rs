//! No guesses: plain decoding through the same round.

use super::{Anchor, Drafter};
use crate::{error::Result, tree::DraftTree};

/// The drafter `none`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDrafter;

impl Drafter for NoDrafter {
    fn name(&self) -> &'static str {
        "none"
    }

    fn propose(&mut self, _: &mut [Anchor<'_>], _: &mut [DraftTree]) -> Result<()> {
        Ok(())
    }
}
