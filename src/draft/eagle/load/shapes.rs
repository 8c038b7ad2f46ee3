//! Whether a file has the tensors that its configuration needs, and no others.

use std::collections::{BTreeMap, BTreeSet};

use super::{EMBEDDING, HEAD, resolve::Resolved};
use crate::model::load::Problem;

/// Shapes of a head's tensors, by canonical name.
pub type Shapes = BTreeMap<String, Vec<usize>>;

impl Resolved {
    /// Compares the file's shapes with what the configuration needs.
    ///
    /// # Errors
    /// The first tensor that is missing, of another shape, or without a place.
    pub fn check(&self, shapes: &Shapes) -> Result<(), Problem> {
        let mut left: BTreeSet<&str> = shapes.keys().map(String::as_str).collect();
        for (name, mut expected, why) in self.config.tensors() {
            let tied = name == HEAD && !shapes.contains_key(&name);
            let source = if tied { EMBEDDING } else { &name };
            let Some(found) = shapes.get(source) else {
                let accepted = format!("one of shape {expected:?}, {why}");
                return Err(Problem::MissingTensor {
                    tensor: name,
                    accepted,
                });
            };
            if name == EMBEDDING || (name == HEAD && (tied || self.order.is_some())) {
                expected[0] = found.first().copied().unwrap_or(0);
            }
            if *found != expected {
                return Err(Problem::Shape {
                    tensor: name,
                    found: found.clone(),
                    expected,
                    why,
                });
            }
            left.remove(source);
        }
        match left.into_iter().find(|name| !self.dropped.contains(*name)) {
            None => Ok(()),
            Some(name) => Err(Problem::UnknownTensor {
                tensor: name.to_owned(),
                why: format!(
                    "{} as the configuration has it is without it",
                    self.config.version.name()
                ),
            }),
        }
    }
}
