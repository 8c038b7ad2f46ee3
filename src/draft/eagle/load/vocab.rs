//! Draft ids and target ids: what a file's map means, decided by the map itself.

use super::super::config::MapForm;
use crate::{TokenId, model::load::Problem};

/// What a file says of its vocabulary map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Maps {
    /// `d2t`.
    pub d2t: Option<Vec<i64>>,
    /// `t2d`.
    pub t2d: Option<Vec<bool>>,
    /// Whether `d2t` is absolute by its container.
    pub absolute: bool,
}

/// The token of each row of the head, in the rows' order, and how the file stored it.
pub(super) type Decided = (Vec<TokenId>, MapForm);

/// Decides what the map of a head of `rows` rows for `vocab` tokens is.
pub(super) fn decide(
    maps: &Maps,
    rows: usize,
    vocab: usize,
    warnings: &mut Vec<String>,
) -> Result<Decided, Problem> {
    if let Some(t2d) = &maps.t2d
        && t2d.len() != vocab
    {
        return Err(Problem::contradiction(
            format!("t2d has {} entries", t2d.len()),
            format!("the vocabulary has {vocab}"),
            "one entry a token",
        ));
    }
    let first: Vec<TokenId> = (0..rows)
        .map_while(|row| TokenId::try_from(row).ok())
        .collect();
    let Some(d2t) = &maps.d2t else {
        if rows == vocab {
            return match &maps.t2d {
                Some(t2d) if !t2d.iter().all(|there| *there) => Err(short(t2d, rows)),
                _ => Ok((first, MapForm::Identity)),
            };
        }
        return Err(Problem::MissingTensor {
            tensor: "d2t".to_owned(),
            accepted: format!("one of shape [{rows}]: the head has {rows} rows for {vocab} tokens"),
        });
    };
    if d2t.len() != rows {
        return Err(Problem::contradiction(
            format!("d2t has {} entries", d2t.len()),
            format!("the head has {rows} rows"),
            "one entry a row",
        ));
    }
    let zero = d2t.iter().all(|offset| *offset == 0);
    if zero && rows < vocab && rows > 1 && !maps.absolute {
        return untrained(maps, first, warnings);
    }
    let readings = [
        (MapForm::Offsets, read(d2t, vocab, true)),
        (MapForm::Absolute, read(d2t, vocab, false)),
    ];
    let readings = if maps.absolute {
        &readings[1..]
    } else {
        &readings[..]
    };
    let fits = |ids: &Vec<TokenId>| maps.t2d.as_ref().is_none_or(|t2d| same_set(ids, t2d));
    let mut refusal = None;
    for (form, reading) in readings {
        match reading {
            Ok(ids) if fits(ids) => {
                let ascending = ids.windows(2).all(|pair| pair[0] < pair[1]);
                if !ascending && maps.t2d.is_none() && !maps.absolute {
                    refusal.get_or_insert_with(|| descending(ids, *form));
                    continue;
                }
                if *form == MapForm::Absolute && !maps.absolute {
                    match &maps.t2d {
                        Some(_) => {
                            warnings.push("d2t holds token ids, not offsets; t2d agrees".to_owned())
                        }
                        None if rows == vocab && ascending => {}
                        None => continue,
                    }
                }
                if !ascending {
                    warnings.push(
                        "the rows of the head are put in the order of their tokens".to_owned(),
                    );
                }
                let identity = rows == vocab && ascending;
                let form = if identity { MapForm::Identity } else { *form };
                return Ok((ids.clone(), form));
            }
            Ok(_) => {
                let count = maps.t2d.as_ref().map_or(0, |t2d| count(t2d));
                refusal.get_or_insert_with(|| {
                    Problem::contradiction(
                        format!("d2t, read as {}, leads to {rows} tokens", form.name()),
                        format!("t2d marks {count} tokens, and not the same"),
                        "a d2t and a t2d of the same tokens",
                    )
                });
            }
            Err(reason) => {
                let (row, value) = *reason;
                refusal.get_or_insert_with(|| {
                    let accepted = format!("offsets to different tokens below {vocab} (or, with a t2d that agrees, the tokens)");
                    let accepted = if maps.absolute { format!("different tokens below {vocab}") } else { accepted };
                    Problem::key(format!("d2t[{row}]"), value, &accepted)
                });
            }
        }
    }
    Err(refusal.unwrap_or_else(|| descending(&first, MapForm::Offsets)))
}

/// The token of each row under one reading, or the row and value at fault.
fn read(d2t: &[i64], vocab: usize, offsets: bool) -> Result<Vec<TokenId>, (usize, i64)> {
    let mut seen = vec![false; vocab];
    let mut ids = Vec::with_capacity(d2t.len());
    for (row, value) in d2t.iter().enumerate() {
        let base = if offsets {
            i64::try_from(row).unwrap_or(i64::MAX)
        } else {
            0
        };
        let id = value
            .checked_add(base)
            .and_then(|id| TokenId::try_from(id).ok());
        let fresh = id
            .and_then(|id| seen.get_mut(id as usize))
            .filter(|seen| !**seen);
        match (id, fresh) {
            (Some(id), Some(seen)) => {
                *seen = true;
                ids.push(id);
            }
            _ => return Err((row, *value)),
        }
    }
    Ok(ids)
}

fn same_set(ids: &[TokenId], t2d: &[bool]) -> bool {
    ids.len() == count(t2d) && ids.iter().all(|id| t2d.get(*id as usize) == Some(&true))
}

fn count(t2d: &[bool]) -> usize {
    t2d.iter().filter(|there| **there).count()
}

/// A map of zeros and a smaller head: SpecForge writes it until a vocabulary has been chosen, with
/// all of t2d set.
fn untrained(
    maps: &Maps,
    first: Vec<TokenId>,
    warnings: &mut Vec<String>,
) -> Result<Decided, Problem> {
    if let Some(t2d) = &maps.t2d
        && count(t2d) != t2d.len()
        && !same_set(&first, t2d)
    {
        return Err(Problem::contradiction(
            "d2t is all zeros",
            format!(
                "t2d marks {} tokens, and not the first {}",
                count(t2d),
                first.len()
            ),
            "offsets to the tokens of t2d",
        ));
    }
    warnings.push(format!(
        "d2t is all zeros, so the head guesses tokens 0 to {} only; a vocabulary may never have been chosen for it",
        first.len().saturating_sub(1)
    ));
    Ok((first, MapForm::Offsets))
}

fn descending(ids: &[TokenId], form: MapForm) -> Problem {
    let at = ids
        .windows(2)
        .position(|pair| pair[0] >= pair[1])
        .map_or(0, |at| at + 1);
    let id = ids.get(at).copied().unwrap_or_default();
    let value = format!(
        "token {id} (read as {}), which is not above the row before it",
        form.name()
    );
    Problem::key(
        format!("d2t[{at}]"),
        value,
        "ascending tokens, or a t2d that agrees",
    )
}

fn short(t2d: &[bool], rows: usize) -> Problem {
    Problem::contradiction(
        format!("t2d marks {} tokens", count(t2d)),
        format!("the head has {rows} rows and there is no d2t"),
        "as many tokens as rows",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(d2t: &[i64], t2d: Option<&[usize]>, vocab: usize) -> Result<Decided, String> {
        let t2d = t2d.map(|ids| (0..vocab).map(|id| ids.contains(&id)).collect());
        let d2t = Some(d2t.to_vec());
        let maps = Maps {
            d2t,
            t2d,
            absolute: false,
        };
        let rows = maps.d2t.as_ref().map_or(0, Vec::len);
        decide(&maps, rows, vocab, &mut Vec::new()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn the_map_itself_and_t2d_decide() {
        assert_eq!(
            decided(&[1, 1, 3], None, 8).unwrap(),
            (vec![1, 2, 5], MapForm::Offsets)
        );
        assert_eq!(
            decided(&[1, 2, 5], Some(&[1, 2, 5]), 8).unwrap(),
            (vec![1, 2, 5], MapForm::Absolute)
        );
        assert_eq!(
            decided(&[1, 2, 5], Some(&[1, 3, 7]), 8).unwrap(),
            (vec![1, 3, 7], MapForm::Offsets)
        );
        assert_eq!(
            decided(&[5, 1, 0], Some(&[0, 1, 5]), 8).unwrap(),
            (vec![5, 1, 0], MapForm::Absolute)
        );
        assert_eq!(decided(&[0, 0, 0], None, 3).unwrap().1, MapForm::Identity);
        assert_eq!(
            decided(&[0, 1, 2], Some(&[0, 1, 2]), 3).unwrap().1,
            MapForm::Identity
        );
        assert_eq!(
            decided(&[0, 0, 0], Some(&[0, 1, 2, 3, 4]), 5).unwrap().0,
            [0, 1, 2]
        );
    }

    #[test]
    fn contradictions_are_errors() {
        for (d2t, t2d, part) in [
            (&[1, 1, 3][..], Some(&[1, 2, 6][..]), "t2d marks 3 tokens"),
            (&[1, 1, 3], Some(&[1, 2]), "t2d marks 2 tokens"),
            (&[0, 0, 0], Some(&[1, 2, 6]), "all zeros"),
            (&[1, 1, 6], None, "d2t[2] is 6"),
            (&[1, -9, 3], None, "d2t[1] is -9"),
            (
                &[i64::MAX, 1, i64::MAX],
                None,
                "d2t[0] is 9223372036854775807",
            ),
            (&[1, i64::MAX, 3], None, "d2t[1] is 9223372036854775807"),
            (&[4, 0, 0], None, "not above"),
            (&[3, 6, 7], None, "d2t[2] is 7"),
        ] {
            let error = decided(d2t, t2d, 8).unwrap_err();
            assert!(error.contains(part), "{d2t:?}: {error}");
        }
    }
}
