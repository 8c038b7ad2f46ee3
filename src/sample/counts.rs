//! What came before a row: the tokens that penalties and `min_tokens` look at.

use std::collections::HashMap;

use crate::TokenId;

/// The tokens of one sequence, counted: which ids prompt and output hold, and how often the output
/// holds each.
///
/// It counts emitted tokens only. Drafts are never pushed; a row sees them through
/// [`History::path`], so a rejected draft leaves nothing behind.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Occurrences in the output by id; a token of the prompt alone is there with 0.
    output: HashMap<TokenId, u32>,
    len: usize,
}

impl Counts {
    /// The counts of a sequence that has its prompt and no output yet.
    #[must_use]
    pub fn new(prompt: &[TokenId]) -> Self {
        Self {
            output: prompt.iter().map(|&token| (token, 0)).collect(),
            len: 0,
        }
    }

    /// Counts an emitted token.
    pub fn push(&mut self, token: TokenId) {
        let count = self.output.entry(token).or_insert(0);
        *count = count.saturating_add(1);
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
    /// Prompt and emitted tokens, the anchor included.
    pub counts: &'a Counts,
    /// Drafts from the anchor (exclusive) to the row (inclusive).
    pub path: &'a [TokenId],
}

impl History<'_> {
    /// Index `t`, from 0, of the generated token that this row chooses.
    ///
    /// ```
    /// use eyrie::sample::{Counts, History};
    ///
    /// let mut counts = Counts::new(&[5, 6, 7]);
    /// counts.push(9); // the anchor, generated token 0
    /// assert_eq!(History { counts: &counts, path: &[] }.index(), 1);
    /// assert_eq!(History { counts: &counts, path: &[3, 3] }.index(), 3);
    /// ```
    #[must_use]
    pub fn index(&self) -> usize {
        self.counts.len + self.path.len()
    }

    /// Calls `f(token, occurrences in output and path)` once for every token that occurred; a token
    /// of the prompt alone has 0. The order is arbitrary.
    pub(super) fn for_each(&self, mut f: impl FnMut(TokenId, f64)) {
        let mut path = self.path.to_vec();
        path.sort_unstable();
        let drafted = |token: TokenId| -> u32 {
            let from = path.partition_point(|&x| x < token);
            let run = path[from..].iter().take_while(|&&x| x == token).count();
            u32::try_from(run).unwrap_or(u32::MAX)
        };
        for (&token, &count) in &self.counts.output {
            f(token, f64::from(count.saturating_add(drafted(token))));
        }
        for run in path.chunk_by(|a, b| a == b) {
            if !self.counts.output.contains_key(&run[0]) {
                f(run[0], f64::from(drafted(run[0])));
            }
        }
    }
}
