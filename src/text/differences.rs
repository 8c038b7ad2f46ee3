//! Whether two tokenizers mean the same by their ids.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::types::TokenId;

/// How many differing ids a report names.
const NAMED: usize = 5;

/// Whether ids may pass from one tokenizer to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// Every id means the same in both.
    Same,
    /// One is the other and more ids behind it: those below `common` mean the same in both.
    Tail {
        /// The number of ids of the shorter one.
        common: usize,
    },
    /// Some id means two things.
    Content,
}

/// One id that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The id.
    pub id: TokenId,
    /// Its spelling in the first tokenizer; `None` if it has no such id.
    pub ours: Option<String>,
    /// Its spelling in the second.
    pub theirs: Option<String>,
}

/// What [`super::Tokenizer::differences`] found. `Display` gives one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differences {
    /// The verdict.
    pub agreement: Agreement,
    /// The number of differing ids.
    pub count: usize,
    /// The first few of them, ascending.
    pub first: Vec<Difference>,
    /// The numbers of ids.
    pub valid: (usize, usize),
}

impl Differences {
    pub(super) fn between(
        ours: &BTreeMap<TokenId, String>,
        theirs: &BTreeMap<TokenId, String>,
    ) -> Self {
        let valid = |ids: &BTreeMap<TokenId, String>| {
            ids.last_key_value().map_or(0, |(id, _)| *id as usize + 1)
        };
        let valid = (valid(ours), valid(theirs));
        let common = valid.0.min(valid.1);
        let mut count = 0;
        let mut below_common = false;
        let mut first = Vec::new();
        let ids: BTreeSet<TokenId> = ours.keys().chain(theirs.keys()).copied().collect();
        for id in ids {
            let (a, b) = (ours.get(&id), theirs.get(&id));
            if a == b {
                continue;
            }
            count += 1;
            below_common |= (id as usize) < common;
            if first.len() < NAMED {
                first.push(Difference {
                    id,
                    ours: a.cloned(),
                    theirs: b.cloned(),
                });
            }
        }
        let agreement = if below_common {
            Agreement::Content
        } else if count > 0 {
            Agreement::Tail { common }
        } else {
            Agreement::Same
        };
        Self {
            agreement,
            count,
            first,
            valid,
        }
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ours, theirs) = self.valid;
        match self.agreement {
            Agreement::Same => return write!(f, "the tokenizers agree on all {ours} ids"),
            Agreement::Tail { common } => write!(
                f,
                "the tokenizers agree on the first {common} ids, and one goes on ({ours} against {theirs} ids): "
            )?,
            Agreement::Content => write!(
                f,
                "the tokenizers differ at {} of {} ids: ",
                self.count,
                ours.max(theirs)
            )?,
        }
        for (at, difference) in self.first.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} is ", difference.id)?;
            spell(f, difference.ours.as_ref())?;
            f.write_str(" against ")?;
            spell(f, difference.theirs.as_ref())?;
        }
        if self.count > self.first.len() {
            f.write_str(", …")?;
        }
        Ok(())
    }
}

fn spell(f: &mut fmt::Formatter<'_>, token: Option<&String>) -> fmt::Result {
    match token {
        Some(token) => write!(f, "{token:?}"),
        None => f.write_str("no token"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(tokens: &[&str]) -> BTreeMap<TokenId, String> {
        (0..).zip(tokens.iter().map(|t| (*t).to_owned())).collect()
    }

    #[test]
    fn equal_longer_and_other() {
        let abc = list(&["a", "b", "c"]);
        let same = Differences::between(&abc, &abc);
        assert_eq!(same.agreement, Agreement::Same);
        assert_eq!(same.to_string(), "the tokenizers agree on all 3 ids");

        let longer = Differences::between(&abc, &list(&["a", "b", "c", "<x>"]));
        assert_eq!(longer.agreement, Agreement::Tail { common: 3 });
        assert_eq!(
            longer.to_string(),
            "the tokenizers agree on the first 3 ids, and one goes on (3 against 4 ids): \
             3 is no token against \"<x>\""
        );

        let other = Differences::between(&abc, &list(&["a", "x", "c", "d"]));
        assert_eq!(other.agreement, Agreement::Content);
        assert_eq!(other.count, 2);
        assert_eq!(
            other.to_string(),
            "the tokenizers differ at 2 of 4 ids: 1 is \"b\" against \"x\", 3 is no token against \"d\""
        );
    }

    #[test]
    fn only_the_first_few_are_named() {
        let ours = list(&["a", "b", "c", "d", "e", "f", "g"]);
        let report = Differences::between(&ours, &list(&["1"; 7]));
        assert_eq!(report.count, 7);
        assert_eq!(report.first.len(), NAMED);
        assert!(report.to_string().ends_with(", …"));
    }
}
