//! Which sequences are trained on, and which are measured with.

use super::{
    Recipe, TrainError,
    batch::unrolled,
    data::{Data, Entry},
};
use crate::{TokenId, error::Result};

/// Sequences, each with the first of its tokens that counts when it is guessed.
pub(super) type Counted = Vec<(Entry, usize)>;

/// Sequences to train on and to measure with. Those to measure with are spread evenly over the answers at
/// the lowest temperature, and of them only tokens of the answer count.
///
/// # Errors
/// If there are not enough of either, or the data cannot be read.
pub(super) fn split(data: &Data, recipe: &Recipe) -> Result<(Counted, Counted)> {
    let entries = data.entries();
    let entries = &entries[..recipe.limit.unwrap_or(usize::MAX).min(entries.len())];
    let shared = if recipe.prompt_rows {
        Some(shared(data, entries)?)
    } else {
        None
    };
    let counted = entries.iter().map(|entry| {
        let from = shared.unwrap_or(entry.prompt_tokens);
        (*entry, from.min(entry.prompt_tokens).max(1))
    });
    let has_rows = |entry: &Entry, from: usize| !unrolled(entry.tokens, from).is_empty();
    let usable = || {
        counted
            .clone()
            .filter(|(entry, from)| has_rows(entry, *from))
    };
    let coldest = usable().map(|(entry, _)| entry.temperature);
    let coldest = coldest.fold(f64::INFINITY, f64::min);
    let can_be_held =
        |entry: &Entry| entry.temperature <= coldest && has_rows(entry, entry.prompt_tokens);
    let count = usable().filter(|(entry, _)| can_be_held(entry)).count();
    let held_out = recipe.held_out;
    if held_out > 0 && held_out >= count {
        return Err(TrainError::Unfit(format!(
            "{held_out} sequences held out of {count} at temperature {coldest}; accepted are fewer than \
             these, 0 to measure nothing"
        ))
        .into());
    }
    let (mut train, mut held, mut at) = (Vec::new(), Vec::new(), 0);
    for (entry, from) in usable() {
        let is_held = can_be_held(&entry) && {
            at += 1;
            // The i-th of the cold ones is held if a multiple of count / held_out lies in it.
            at * held_out / count > (at - 1) * held_out / count
        };
        if is_held {
            held.push((entry, entry.prompt_tokens));
        } else {
            train.push((entry, from));
        }
    }
    if train.is_empty() {
        let what = "no sequence to train on; accepted are data with answers of two tokens or more";
        return Err(TrainError::Unfit(what.to_owned()).into());
    }
    Ok((train, held))
}

/// Tokens that all sequences begin with: the system prompt.
fn shared(data: &Data, entries: &[Entry]) -> Result<usize> {
    let mut common: Option<Vec<TokenId>> = None;
    for entry in entries {
        let mut tokens = data.tokens(entry)?;
        tokens.truncate(entry.prompt_tokens);
        if let Some(common) = &common {
            let same = common.iter().zip(&tokens).take_while(|(a, b)| a == b);
            tokens.truncate(same.count());
        }
        common = Some(tokens);
    }
    Ok(common.map_or(0, |common| common.len()))
}
