//! Cells with little expectation, pooled: what stands alone, and what lies inside the pools.
//!
//! Tests with the law of chi-square see the cells that stand; [`crate::monte_carlo`] sees those inside.

use crate::{
    chi2::BadInput,
    number::{float, total},
};

/// Expected counts a cell must have to stand alone in Pearson's test.
pub(crate) const ENOUGH: f64 = 5.0;

/// One cell: what decides whether it stands alone, and what was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) weight: f64,
    pub(crate) seen: [f64; 2],
    members: usize,
}

/// Counts made ready for tests.
///
/// Invariant: `standing` is not empty; `inside` are the single cells that the standing cells of more than
/// one member were made of.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) standing: Vec<Cell>,
    pub(crate) inside: Vec<Cell>,
    /// Samples of each kind; the second is 0 for goodness of fit.
    pub(crate) total: [f64; 2],
    /// A count in a cell of probability 0.
    pub(crate) impossible: bool,
}

impl Pools {
    /// Share of the weight that lies inside the pools.
    pub(crate) fn mass(&self) -> f64 {
        let weight = |cells: &[Cell]| cells.iter().fold(0.0, |sum, c| sum + c.weight);
        weight(&self.inside) / weight(&self.standing)
    }

    /// The sample size that power depends on.
    pub(crate) fn effective(&self) -> f64 {
        match self.total {
            [n, 0.0] => n,
            [n, m] => n * m / (n + m),
        }
    }
}

/// Counts against a law: the weight of a cell is its expectation, and `enough` of it stands alone.
pub(crate) fn of_law(counts: &[u64], p: &[f64], enough: f64) -> Result<Pools, BadInput> {
    if counts.len() != p.len() {
        return Err(BadInput(format!(
            "{} counts for a law of {} cells",
            counts.len(),
            p.len()
        )));
    }
    check_law(p)?;
    let n = total(counts);
    if n == 0.0 {
        return Err(BadInput("no samples".into()));
    }
    let impossible = counts.iter().zip(p).any(|(&c, &p)| c > 0 && p == 0.0);
    let cells = counts.iter().zip(p).map(|(&c, &p)| Cell {
        weight: n * p,
        seen: [float(c), 0.0],
        members: 1,
    });
    let (standing, inside) = pool(cells.collect(), enough);
    Ok(Pools {
        standing,
        inside,
        total: [n, 0.0],
        impossible,
    })
}

/// Refuses what is no law: a NaN, a negative number, a sum further than 1e-6 from 1.
pub(crate) fn check_law(p: &[f64]) -> Result<(), BadInput> {
    if let Some(i) = p.iter().position(|x| !(x.is_finite() && *x >= 0.0)) {
        let message = format!("p[{i}] = {}: must be a number at least 0", p[i]);
        return Err(BadInput(message));
    }
    let sum: f64 = p.iter().sum();
    if (sum - 1.0).abs() > 1e-6 {
        return Err(BadInput(format!("the law sums to {sum}: must be 1")));
    }
    Ok(())
}

/// Two samples: the weight of a cell is what the smaller sample expects of it, so that a cell stands
/// alone if both expect `enough`.
pub(crate) fn of_two(a: &[u64], b: &[u64], enough: f64) -> Result<Pools, BadInput> {
    if a.len() != b.len() {
        return Err(BadInput(format!(
            "samples over {} and {} cells",
            a.len(),
            b.len()
        )));
    }
    let (n, m) = (total(a), total(b));
    if n == 0.0 || m == 0.0 {
        return Err(BadInput("a sample is empty".into()));
    }
    let share = n.min(m) / (n + m);
    let cells = a.iter().zip(b).map(|(&a, &b)| Cell {
        weight: (float(a) + float(b)) * share,
        seen: [float(a), float(b)],
        members: 1,
    });
    let (standing, inside) = pool(cells.collect(), enough);
    Ok(Pools {
        standing,
        inside,
        total: [n, m],
        impossible: false,
    })
}

/// Standing cells and those inside pools: cells of weight `enough` as they are, the others in pools of that weight, lightest first; what is
/// left over joins the lightest that stands. So the cells inside pools are the lightest ones.
fn pool(mut cells: Vec<Cell>, enough: f64) -> (Vec<Cell>, Vec<Cell>) {
    cells.retain(|c| c.weight > 0.0);
    cells.sort_by(|a, b| a.weight.total_cmp(&b.weight));
    let mut standing: Vec<Cell> = Vec::with_capacity(cells.len());
    let mut open: Option<Cell> = None;
    for cell in &cells {
        let sum = open.take().map_or(*cell, |o| merge(o, *cell));
        if sum.weight >= enough {
            standing.push(sum);
        } else {
            open = Some(sum);
        }
    }
    match (open, standing.first_mut()) {
        (Some(rest), Some(first)) => *first = merge(*first, rest),
        (Some(rest), None) => standing.push(rest),
        (None, _) => {}
    }
    let members = standing.iter().map(|c| c.members);
    cells.truncate(members.filter(|&members| members > 1).sum());
    (standing, cells)
}

fn merge(a: Cell, b: Cell) -> Cell {
    Cell {
        weight: a.weight + b.weight,
        seen: [a.seen[0] + b.seen[0], a.seen[1] + b.seen[1]],
        members: a.members + b.members,
    }
}
