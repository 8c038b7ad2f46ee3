//! Covering sets: few rows in which every pair of levels of every two factors still meets.

use std::collections::BTreeSet;

/// Two factors and a level of each.
type Pair = ((usize, usize), (usize, usize));

/// All pairs of a full grid with `levels[f]` levels of factor f.
fn all_pairs(levels: &[usize]) -> BTreeSet<Pair> {
    let mut pairs = BTreeSet::new();
    for f in 0..levels.len() {
        for g in f + 1..levels.len() {
            for a in 0..levels[f] {
                pairs.extend((0..levels[g]).map(|b| ((f, a), (g, b))));
            }
        }
    }
    pairs
}

/// The pairs that meet in `row`.
fn pairs_of(row: &[usize]) -> impl Iterator<Item = Pair> + '_ {
    let pairs = move |f: usize| (f + 1..row.len()).map(move |g| ((f, row[f]), (g, row[g])));
    (0..row.len()).flat_map(pairs)
}

/// Rows of levels such that every pair meets in at least one: greedily, factor by factor, always the
/// level that covers most of what is left, starting from the first pair left. Deterministic.
#[must_use]
pub fn pairwise(levels: &[usize]) -> Vec<Vec<usize>> {
    let mut left = all_pairs(levels);
    let mut rows = Vec::new();
    while let Some(((f, a), (g, b))) = left.first().copied() {
        let mut row: Vec<Option<usize>> = vec![None; levels.len()];
        (row[f], row[g]) = (Some(a), Some(b));
        for h in 0..levels.len() {
            if row[h].is_some() {
                continue;
            }
            let gain = |level: &usize| {
                let meets = |(other, chosen): (usize, &Option<usize>)| {
                    let (x, y) = ((other, (*chosen)?), (h, *level));
                    left.contains(&(x.min(y), x.max(y))).then_some(())
                };
                row.iter().enumerate().filter_map(meets).count()
            };
            let turn = rows.len();
            let in_turn = (0..levels[h]).map(|level| (level + turn) % levels[h]);
            row[h] = in_turn.max_by_key(gain);
        }
        let row: Vec<usize> = row.into_iter().flatten().collect();
        for pair in pairs_of(&row) {
            left.remove(&pair);
        }
        rows.push(row);
    }
    rows
}

/// The pairs of the full grid that meet in none of `rows`.
#[must_use]
pub fn missing(levels: &[usize], rows: &[Vec<usize>]) -> usize {
    let met: BTreeSet<Pair> = rows.iter().flat_map(|row| pairs_of(row)).collect();
    all_pairs(levels).difference(&met).count()
}
