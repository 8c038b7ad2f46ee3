//! Traces for the PIT.

use std::path::Path;

use serde::Deserialize;

use super::{Failure, lines};
use crate::pit::Row;

#[derive(Debug, Deserialize)]
struct Line {
    p: Numbers,
    q: Option<Vec<f64>>,
    token: Option<usize>,
    below: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "p must be a list of numbers or a number")]
enum Numbers {
    One(f64),
    Many(Vec<f64>),
}

/// Rows and their line numbers.
pub(super) fn read(path: &Path) -> Result<(Vec<Row>, Vec<usize>), Failure> {
    let (mut rows, mut numbers) = (Vec::new(), Vec::new());
    let count = lines::read(path, |number, line: Line| {
        let row = match line {
            Line {
                p: Numbers::Many(p),
                q: Some(q),
                token: Some(token),
                below: None,
            } => Row::of(&p, &q, token),
            Line {
                p: Numbers::One(p),
                q: None,
                token: _,
                below: Some(below),
            } => Row::at(below, p),
            _ => {
                let problem = "must have lists \"p\" and \"q\" and a \"token\", or numbers \"below\" and \"p\"";
                return Err(lines::at(path, number, problem));
            }
        };
        rows.push(row.map_err(|e| lines::at(path, number, e))?);
        numbers.push(number);
        Ok(())
    })?;
    if count == 0 {
        return Err(lines::of(path, "no rows: must have a line for each token"));
    }
    Ok((rows, numbers))
}
