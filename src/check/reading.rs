//! What the target says of texts.

use super::Subject;
use crate::{
    Matrix, SeqId, TokenId,
    cache::Txn,
    error::{ErrorKind, Result},
    model::{Rows, Wanted},
};

/// Rows of a text in one pass.
const CHUNK: usize = 32;

/// Tokens to be read, and how many more the target is to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The tokens, at least one.
    pub tokens: Vec<TokenId>,
    /// Tokens of the answer; 0: the text is taken as it is, and all of it counts.
    pub answer: usize,
}

/// A text that the target was fed.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) tokens: Vec<TokenId>,
    /// The first row of the head that counts: the first that drafting would use.
    pub(super) from: usize,
    /// The streams of every token, `[tokens, taps * hidden]`.
    streams: Matrix,
    /// What the target says after every token.
    pub(super) says: Vec<TokenId>,
}

impl Reading {
    /// The streams `wanted` out of all `taps` that were read, side by side.
    pub(super) fn shown(&self, taps: &[usize], wanted: &[usize], width: usize) -> Matrix {
        let places: Vec<_> = wanted
            .iter()
            .filter_map(|tap| taps.binary_search(tap).ok())
            .collect();
        let row = |row| {
            let streams: &[f32] = self.streams.row(row);
            places
                .iter()
                .flat_map(move |place| &streams[place * width..(place + 1) * width])
        };
        let values = (0..self.streams.rows()).flat_map(row).copied();
        Matrix::new(wanted.len() * width, values.collect())
    }
}

/// A text while it is read.
struct Open {
    tokens: Vec<TokenId>,
    left: usize,
    from: usize,
    streams: Vec<f32>,
    says: Vec<TokenId>,
    done: bool,
}

impl Open {
    /// Goes on after all its tokens have been fed, or ends.
    fn go_on(&mut self, subject: &Subject) {
        if self.says.len() < self.tokens.len() {
            return;
        }
        let next = self.says.last().copied();
        match next.filter(|next| self.left > 1 && !subject.eos.contains(next)) {
            Some(next) if self.tokens.len() < subject.target.context() => {
                self.left -= 1;
                self.tokens.push(next);
            }
            _ => self.done = true,
        }
    }
}

/// Reads `texts` together, with the streams `taps`.
pub(super) fn read(subject: &Subject, texts: &[Text], taps: &[usize]) -> Result<Vec<Reading>> {
    let target = &subject.target;
    let context = target.context();
    let mut open = Vec::with_capacity(texts.len());
    for text in texts {
        let (count, tokens) = (text.tokens.len(), text.tokens.clone());
        if count == 0 || count > context {
            let message = format!("a text of {count} tokens, accepted are 1 to {context}");
            return Err(ErrorKind::Rows(message).into());
        }
        open.push(Open {
            tokens,
            left: text.answer,
            from: if text.answer == 0 { 0 } else { count - 1 },
            streams: Vec::new(),
            says: Vec::new(),
            done: false,
        });
    }
    let room = texts
        .iter()
        .map(|text| (text.tokens.len() + text.answer).min(context));
    let mut cache = target.new_cache(room.sum());
    loop {
        let mut rows = Rows::new();
        let live = open.iter().zip(0..).filter(|(text, _)| !text.done);
        for (text, seq) in live {
            let fed = text.says.len();
            let next = &text.tokens[fed..text.tokens.len().min(fed + CHUNK)];
            rows.chain(SeqId(seq), fed, next, Wanted::All)?;
        }
        if rows.is_empty() {
            break;
        }
        let Some(mut txn) = Txn::begin(&mut cache, &rows.want()) else {
            return Err(ErrorKind::Cache("no room for the texts".to_owned()).into());
        };
        let out = target.forward(&rows, &mut txn, taps)?;
        let mut row = 0;
        for (text, seq) in open.iter_mut().zip(0..).filter(|(text, _)| !text.done) {
            txn.commit_all(SeqId(seq))?;
            let fed = (text.tokens.len() - text.says.len()).min(CHUNK);
            for row in row..row + fed {
                if let Some(streams) = &out.taps {
                    text.streams.extend(streams.row(row));
                }
                let logits = &out.logits.row(row)[..subject.valid.min(target.vocab())];
                text.says.push(best(logits).unwrap_or_default());
            }
            row += fed;
            text.go_on(subject);
        }
    }
    let width = taps.len() * target.hidden();
    let finished = open.into_iter().map(|text| Reading {
        from: text.from,
        streams: Matrix::new(width, text.streams),
        says: text.says,
        tokens: text.tokens,
    });
    Ok(finished.collect())
}

/// The place of the largest number, the lowest of equals, as a token.
fn best(logits: &[f32]) -> Option<TokenId> {
    let place = super::rows::largest(logits)?;
    TokenId::try_from(place).ok()
}
