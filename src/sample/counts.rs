//! What came before a row: the tokens that penalties and `min_tokens` look at.

use std::collections::HashMap;

use crate::TokenId;

/// The tokens of one sequence, counted: how often prompt and output hold each id.
///
/// It counts emitted tokens only. Drafts are never pushed; a row sees them through
/// [`History::path`], so a rejected draft leaves nothing behind.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    seen: HashMap<TokenId, Places>,
    len: usize,
}

/// How often an id occurs.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    prompt: u32,
    output: u32,
}

/// How often an id occurs before a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occurrences {
    /// In output and path.
    pub(super) output: f64,
    /// In prompt, output and path.
    pub(super) all: f64,
}

impl Counts {
    /// The counts of a sequence that has its prompt and no output yet.
    #[must_use]
    pub fn new(prompt: &[TokenId]) -> Self {
        let mut counts = Self::default();
        for token in prompt {
            let places = counts.seen.entry(*token).or_default();
            places.prompt = places.prompt.saturating_add(1);
        }
        counts
    }

    /// Counts an emitted token.
    pub fn push(&mut self, token: TokenId) {
        let places = self.seen.entry(token).or_default();
        places.output = places.output.saturating_add(1);
        self.len += 1;
    }

    /// Number of emitted tokens.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.len
    }
}

/// What one row of the target (or of a drafter) has before it.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    /// Prompt and emitted tokens, the anchor included, counted.
    pub counts: &'a Counts,
    /// The same tokens in their order.
    pub tokens: &'a [TokenId],
    /// Drafts from the anchor (exclusive) to the row (inclusive).
    pub path: &'a [TokenId],
}

impl<'a> History<'a> {
    /// Index `t`, from 0, of the generated token that this row chooses.
    ///
    /// ```
    /// use eyrie::sample::{Counts, History};
    ///
    /// let mut counts = Counts::new(&[5, 6, 7]);
    /// counts.push(9); // the anchor, generated token 0
    /// let tokens = &[5, 6, 7, 9];
    /// assert_eq!(History { counts: &counts, tokens, path: &[] }.index(), 1);
    /// let history = History { counts: &counts, tokens, path: &[3, 3] };
    /// assert_eq!((history.index(), history.output()), (3, &[9][..]));
    /// assert_eq!(history.context().collect::<Vec<_>>(), [5, 6, 7, 9, 3, 3]);
    /// ```
    #[must_use]
    pub fn index(&self) -> usize {
        self.counts.len + self.path.len()
    }

    /// The emitted tokens, the anchor included.
    #[must_use]
    pub fn output(&self) -> &'a [TokenId] {
        &self.tokens[self.tokens.len().saturating_sub(self.counts.len)..]
    }

    /// Prompt, emitted tokens and the drafts of the path.
    pub fn context(&self) -> impl DoubleEndedIterator<Item = TokenId> + use<'a> {
        self.tokens.iter().chain(self.path).copied()
    }

    /// Calls `f(token, occurrences)` once for every token that occurred. The order is arbitrary.
    pub(super) fn for_each(&self, mut f: impl FnMut(TokenId, Occurrences)) {
        let mut path = self.path.to_vec();
        path.sort_unstable();
        let drafted = |token: TokenId| -> u32 {
            let from = path.partition_point(|&x| x < token);
            let run = path[from..].iter().take_while(|&&x| x == token).count();
            u32::try_from(run).unwrap_or(u32::MAX)
        };
        let mut tell = |token, places: Places| {
            let output = f64::from(places.output.saturating_add(drafted(token)));
            let all = output + f64::from(places.prompt);
            f(token, Occurrences { output, all });
        };
        for (&token, &places) in &self.counts.seen {
            tell(token, places);
        }
        for run in path.chunk_by(|a, b| a == b) {
            if !self.counts.seen.contains_key(&run[0]) {
                tell(run[0], Places::default());
            }
        }
    }
}
