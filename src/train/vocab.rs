//! The draft vocabulary: the tokens that answers are made of.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    TrainError,
    data::{Data, Entry},
};
use crate::{TokenId, error::Result};

/// How much of the data a draft vocabulary has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Coverage {
    /// Tokens of answers.
    pub(super) tokens: usize,
    /// Of them, those in the vocabulary.
    pub(super) covered: usize,
}

/// The `count` tokens that the answers of `entries` have most often, ascending, `forced` ones among them
/// whatever their number. What answers leave open goes to the commonest tokens of prompts, then to the
/// lowest ids. Ties go to the lower id.
///
/// # Errors
/// If there are not so many tokens, or more are forced; if a forced one does not exist.
pub(super) fn choose<'a>(
    data: &Data,
    entries: impl Iterator<Item = &'a Entry>,
    count: usize,
    forced: &[TokenId],
) -> Result<(Vec<TokenId>, Coverage)> {
    let vocab = data.facts().vocab;
    let forced: BTreeSet<TokenId> = forced.iter().copied().collect();
    if let Some(id) = forced.iter().find(|id| **id as usize >= vocab) {
        return Err(TrainError::Unfit(format!(
            "a template or end token {id}; accepted are those below {vocab}"
        ))
        .into());
    }
    let least = forced.len().max(1);
    if !(least..=vocab).contains(&count) {
        return Err(TrainError::Unfit(format!(
            "a draft vocabulary of {count} tokens; accepted are {least} (all end and template tokens) to \
             {vocab}"
        ))
        .into());
    }
    let (answers, prompts) = counts(data, entries)?;
    let rank = |counts: &BTreeMap<TokenId, usize>| {
        let mut ranked: Vec<_> = counts.iter().map(|(id, count)| (*id, *count)).collect();
        ranked.sort_by_key(|(id, count)| (Reverse(*count), *id));
        ranked.into_iter().map(|(id, _)| id)
    };
    let every = 0..TokenId::try_from(vocab).unwrap_or(TokenId::MAX);
    let order = rank(&answers).chain(rank(&prompts)).chain(every);
    let mut chosen = forced.clone();
    for id in order {
        if chosen.len() == count {
            break;
        }
        chosen.insert(id);
    }
    assert!(
        forced.is_subset(&chosen),
        "end and template tokens are kept"
    );
    let covered = answers.iter().filter(|(id, _)| chosen.contains(id));
    let coverage = Coverage {
        tokens: answers.values().sum(),
        covered: covered.map(|(_, count)| count).sum(),
    };
    Ok((chosen.into_iter().collect(), coverage))
}

type Counts = BTreeMap<TokenId, usize>;

/// How often tokens occur in answers, and in prompts.
fn counts<'a>(data: &Data, entries: impl Iterator<Item = &'a Entry>) -> Result<(Counts, Counts)> {
    let (mut answers, mut prompts) = (Counts::new(), Counts::new());
    for entry in entries {
        let tokens = data.tokens(entry)?;
        let (prompt, answer) = tokens.split_at(entry.prompt_tokens);
        for (counts, tokens) in [(&mut answers, answer), (&mut prompts, prompt)] {
            for token in tokens {
                *counts.entry(*token).or_default() += 1;
            }
        }
    }
    Ok((answers, prompts))
}
