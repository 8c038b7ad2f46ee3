//! The rows of a text, as drafting would feed them to a head.

use super::{reading::Reading, token_of};
use crate::{
    Matrix, SeqId, TokenId,
    cache::{KvCache, Txn},
    draft::eagle::{Head, HeadConfig},
    error::{ErrorKind, Result},
    model::{Rows, Wanted},
};

/// Rows in one pass.
const CHUNK: usize = 64;
/// The text itself.
const TEXT: SeqId = SeqId(0);

/// For every row that counts, the likeliest column of the logits at each position, up to `depth`;
/// fewer where the text or the head's positions end. `shown` are the target's streams of every token;
/// embeddings are of the tokens `shift` above.
pub(super) fn guesses(
    head: &Head,
    reading: &Reading,
    shown: Matrix,
    shift: u32,
    depth: usize,
) -> Result<Vec<Vec<Option<usize>>>> {
    let config = head.config();
    let count = (reading.tokens.len() - 1).min(config.max_position);
    if count <= reading.from {
        return Ok(Vec::new());
    }
    let tokens = &shifted(&reading.tokens, shift, config.vocab);
    let features = head.fuse(shown);
    let mut cache = head.new_cache(count + CHUNK * depth);
    let mut all = Vec::new();
    // Features of what follows on the rows that count.
    let mut next = Vec::new();
    for begin in (0..count).step_by(CHUNK) {
        let end = count.min(begin + CHUNK);
        let one = [(TEXT, begin, &tokens[begin + 1..=end])];
        let outputs = feed(head, &mut cache, &one, &features.gather(begin..end))?;
        let counted = begin.max(reading.from).min(end)..end;
        if counted.is_empty() {
            continue;
        }
        let outputs = outputs.gather(counted.map(|row| row - begin));
        for logits in each(&head.logits(&outputs)) {
            all.push(vec![largest(logits)]);
        }
        next.extend(head.fed_back(outputs).as_slice());
    }
    let mut next = Matrix::new(config.hidden, next);
    for batch in (0..all.len()).step_by(CHUNK) {
        let batch = batch..all.len().min(batch + CHUNK);
        let branch = |row: usize| SeqId(row as u64 + 1);
        for row in batch.clone() {
            cache.fork(TEXT, branch(row), reading.from + row + 1)?;
        }
        for at in 1..depth {
            // Row r of the head is followed by rows r + 1, …, with tokens r + 2, ….
            let goes_on = |row: &usize| {
                let row = reading.from + row + at;
                row + 1 < tokens.len() && row < config.max_position
            };
            let live: Vec<usize> = batch.clone().filter(goes_on).collect();
            if live.is_empty() {
                break;
            }
            let spans = live.iter().map(|row| {
                let place = reading.from + row + at;
                (branch(*row), place, &tokens[place + 1..place + 2])
            });
            let spans: Vec<_> = spans.collect();
            let features = next.gather(live.iter().copied());
            let outputs = feed(head, &mut cache, &spans, &features)?;
            for (row, logits) in live.iter().zip(each(&head.logits(&outputs))) {
                all[*row].push(largest(logits));
            }
            let features = head.fed_back(outputs);
            for (i, row) in live.iter().enumerate() {
                next.row_mut(*row).copy_from_slice(features.row(i));
            }
        }
        batch.for_each(|row| cache.release(branch(row)));
    }
    Ok(all)
}

/// Feeds chains, and keeps their rows; the outputs of all.
fn feed(
    head: &Head,
    cache: &mut KvCache,
    chains: &[(SeqId, usize, &[TokenId])],
    features: &Matrix,
) -> Result<Matrix> {
    let mut rows = Rows::new();
    for (seq, base, tokens) in chains {
        rows.chain(*seq, *base, tokens, Wanted::All)?;
    }
    let Some(mut txn) = Txn::begin(cache, &rows.want()) else {
        return Err(ErrorKind::Cache("no room for the head's rows".to_owned()).into());
    };
    let outputs = head.forward(&rows, features, &mut txn)?;
    for (seq, ..) in chains {
        txn.commit_all(*seq)?;
    }
    Ok(outputs)
}

/// For every row that counts, whether the guesses are what the target says there, when columns are
/// taken for those `roll` on.
pub(super) fn right(
    config: &HeadConfig,
    reading: &Reading,
    columns: &[Vec<Option<usize>>],
    roll: isize,
) -> Vec<Vec<bool>> {
    let row = |(row, guesses): (usize, &Vec<Option<usize>>)| {
        let said = &reading.says[reading.from + row + 1..];
        let guesses = guesses.iter().zip(said);
        guesses
            .map(|(column, said)| {
                column.map(|column| token_of(config, column, roll)) == Some(*said)
            })
            .collect()
    };
    columns.iter().enumerate().map(row).collect()
}

/// The place of the largest number, the lowest of equals; none if nothing is a number.
pub(super) fn largest(logits: &[f32]) -> Option<usize> {
    let mut best = None::<(usize, f32)>;
    for (place, logit) in logits.iter().enumerate() {
        if best.map_or(!logit.is_nan(), |(_, best)| *logit > best) {
            best = Some((place, *logit));
        }
    }
    best.map(|(place, _)| place)
}

fn each(matrix: &Matrix) -> impl Iterator<Item = &[f32]> {
    (0..matrix.rows()).map(|row| matrix.row(row))
}

fn shifted(tokens: &[TokenId], shift: u32, vocab: usize) -> Vec<TokenId> {
    let vocab = TokenId::try_from(vocab).unwrap_or(TokenId::MAX);
    let one = |token: &TokenId| token.wrapping_add(shift) % vocab;
    tokens.iter().map(one).collect()
}
