//! The two ends of a head that have a row a token: its embedding, and what gives the logits.

use super::{
    super::config::{MapForm, Version, VocabMap},
    EMBEDDING, HEAD, TargetFacts,
    declared::Declared,
    shapes::Shapes,
    vocab::{self, Maps},
};
use crate::model::load::Problem;

/// What gives the logits.
pub(super) struct Output {
    /// Whether it is the head's own; else the target's.
    pub(super) own: bool,
    /// Rows of the logits.
    pub(super) rows: usize,
    pub(super) map: VocabMap,
    pub(super) form: MapForm,
    /// For each of these rows, its row in the file; `None` if they are the same rows.
    pub(super) order: Option<Vec<usize>>,
}

impl Declared {
    /// Checks the head's own embedding, if it has one, against the target.
    pub(super) fn embedding(
        &self,
        shapes: &Shapes,
        target: &TargetFacts,
        warnings: &mut Vec<String>,
    ) -> Result<(), Problem> {
        match shapes.get(EMBEDDING) {
            None if self.hidden != target.hidden => Err(Problem::contradiction(
                format!(
                    "hidden_size is {}, and there is no tensor {EMBEDDING}",
                    self.hidden
                ),
                format!("the target's width is {}", target.hidden),
                "an embedding of the head's own where the widths differ",
            )),
            None => Ok(()),
            Some(shape) => {
                let rows = shape.first().copied().unwrap_or(0);
                let declared = self.vocab.unwrap_or(target.vocab);
                if rows != declared {
                    return Err(Problem::contradiction(
                        format!("{EMBEDDING} has shape {shape:?}"),
                        format!("the vocabulary has {declared}"),
                        "one row a token",
                    ));
                }
                if rows != target.vocab {
                    warnings.push(format!(
                        "{EMBEDDING} has {rows} rows, the target's vocabulary {}: rows are {}",
                        target.vocab,
                        if rows > target.vocab {
                            "cut off"
                        } else {
                            "added, of zeros"
                        }
                    ));
                }
                Ok(())
            }
        }
    }

    /// What gives the logits, and which tokens its rows are.
    pub(super) fn output(
        &self,
        version: Version,
        shapes: &Shapes,
        maps: &Maps,
        target: &TargetFacts,
        warnings: &mut Vec<String>,
    ) -> Result<Output, Problem> {
        let stored = shapes
            .get(HEAD)
            .map(|shape| shape.first().copied().unwrap_or(0));
        let embedding = shapes.contains_key(EMBEDDING);
        let vocab = match (self.vocab, &maps.t2d) {
            (Some(vocab), _) => vocab,
            (None, Some(t2d)) => t2d.len(),
            (None, None) => target.vocab,
        };
        let tied = self.tied && stored.is_none();
        if tied && !embedding && !target.tied {
            return Err(Problem::contradiction(
                "tie_word_embeddings is true, and neither embedding nor head are there",
                "the target's head is not its embedding",
                "a head or an embedding of the head's own",
            ));
        }
        if self.tied && stored.is_some() {
            warnings.push(format!(
                "tie_word_embeddings is true; the file has {HEAD}, which is used"
            ));
        }
        let own = stored.is_some() || (tied && embedding);
        let rows = match stored {
            Some(rows) => rows,
            None if own => vocab,
            None => target.vocab,
        };
        if stored.is_none()
            && self
                .draft_vocab
                .is_some_and(|said| said != vocab && said != rows)
        {
            let tensor = HEAD.to_owned();
            let accepted = format!(
                "one of {} rows, as draft_vocab_size says",
                self.draft_vocab.unwrap_or(0)
            );
            return Err(Problem::MissingTensor { tensor, accepted });
        }
        if !own {
            if self.hidden != target.hidden {
                return Err(Problem::contradiction(
                    format!(
                        "hidden_size is {}, and there is no tensor {HEAD}",
                        self.hidden
                    ),
                    format!("the target's width is {}", target.hidden),
                    "an output head of its own where the widths differ",
                ));
            }
            if maps.d2t.is_some() || maps.t2d.is_some() {
                let (map, form) = vocab::decide(maps, rows, vocab, warnings)?;
                if form != MapForm::Identity {
                    return Err(Problem::contradiction(
                        format!("the map leads to {} tokens", map.len()),
                        format!("there is no tensor {HEAD}"),
                        "a head of its own with a reduced vocabulary",
                    ));
                }
            }
            return Ok(Output {
                own,
                rows,
                map: VocabMap::Identity,
                form: MapForm::Identity,
                order: None,
            });
        }
        if rows == 0 {
            return Err(Problem::contradiction(
                format!("{HEAD} has no rows"),
                "the head is its own",
                "a row for each token that it can guess",
            ));
        }
        if let Some(said) = self.draft_vocab.filter(|said| *said != rows) {
            return Err(Problem::contradiction(
                format!("draft_vocab_size is {said}"),
                format!("{HEAD} has {rows} rows"),
                "the same number",
            ));
        }
        if version == Version::Eagle1 && rows != vocab {
            return Err(Problem::contradiction(
                format!("{HEAD} has {rows} rows"),
                format!("the vocabulary has {vocab}"),
                "one row a token",
            ));
        }
        let (ids, form) = vocab::decide(maps, rows, vocab, warnings)?;
        if form != MapForm::Identity
            && let Some(beyond) = ids.iter().find(|id| **id as usize >= target.vocab)
        {
            return Err(Problem::contradiction(
                format!("d2t leads to token {beyond}"),
                format!("the target's vocabulary has {}", target.vocab),
                "a head made for a target with this vocabulary",
            ));
        }
        if vocab != target.vocab {
            warnings.push(format!("the head was made for {vocab} tokens, the target has {}; tokens that only one has are not guessed", target.vocab));
        }
        let mut order: Vec<(u32, usize)> = ids.iter().copied().zip(0..).collect();
        order.retain(|(id, _)| (*id as usize) < target.vocab);
        order.sort_unstable();
        let moved =
            order.len() != rows || order.iter().enumerate().any(|(at, (_, row))| at != *row);
        let ids: Vec<u32> = order.iter().map(|(id, _)| *id).collect();
        let map = if ids.len() == target.vocab {
            VocabMap::Identity
        } else {
            VocabMap::Reduced(ids.into())
        };
        let rows = order.len();
        let order = moved.then(|| order.iter().map(|(_, row)| *row).collect());
        Ok(Output {
            own,
            rows,
            map,
            form,
            order,
        })
    }
}
