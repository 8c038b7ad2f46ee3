//! The sign test.

/// The probability of at least `wins` heads in `wins + losses` tosses of a fair coin: how likely one
/// of two is right that often where the other is wrong, if neither is better. Rows on which both are
/// right, or both wrong, say nothing (McNemar 1947).
#[must_use]
pub(super) fn sign_test(wins: u32, losses: u32) -> f64 {
    let n = f64::from(wins) + f64::from(losses);
    let mut ln = -n * std::f64::consts::LN_2;
    let mut p = 0.0;
    for k in 0..=wins + losses {
        if k >= wins {
            p += ln.exp();
        }
        let k = f64::from(k);
        ln += ((n - k) / (k + 1.0)).ln();
    }
    p.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_tail_of_a_fair_coin() {
        for (wins, losses, p) in [
            (0, 0, 1.0),
            (0, 5, 1.0),
            (3, 0, 0.125),
            (2, 1, 0.5),
            (8, 2, 56.0 / 1024.0),
            (10, 0, 1.0 / 1024.0),
        ] {
            let found = sign_test(wins, losses);
            assert!((found - p).abs() < 1e-12, "{wins} {losses}: {found}");
        }
        // By the normal law with its correction: 2.97 deviations, 1.5e-3.
        let found = sign_test(5150, 4850);
        assert!((found - 1.4e-3).abs() < 2e-4, "{found}");
        assert!(sign_test(100_000, 0) == 0.0);
    }
}
