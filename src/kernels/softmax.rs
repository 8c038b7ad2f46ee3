//! The softmax.

use super::{
    act::exp,
    simd::{Kernel, Lanes, dispatch},
};

/// Writes the softmax of `logits` to `law`, as long; the logarithm of what it was divided by. What is
/// not a number stays none.
pub(crate) fn softmax(logits: &[f32], law: &mut [f32]) -> f32 {
    dispatch(Softmax { logits, law })
}

#[derive(Debug)]
struct Softmax<'a> {
    logits: &'a [f32],
    law: &'a mut [f32],
}

impl Kernel for Softmax<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Lanes>(self, _simd: S) -> f32 {
        let peak = over(
            self.logits,
            f32::NEG_INFINITY,
            |a, x| if x > a { x } else { a },
        );
        for (p, x) in self.law.iter_mut().zip(self.logits) {
            *p = exp(x - peak);
        }
        let total = over(self.law, 0.0, |sum, x| sum + x);
        let share = 1.0 / total;
        self.law.iter_mut().for_each(|p| *p *= share);
        peak + total.ln()
    }
}

/// Puts values together in sixteen lanes, and then these.
#[inline(always)]
fn over(values: &[f32], start: f32, put: impl Fn(f32, f32) -> f32) -> f32 {
    let (sixteens, rest) = values.as_chunks::<16>();
    let mut lanes = [start; 16];
    for values in sixteens {
        for (lane, x) in lanes.iter_mut().zip(values) {
            *lane = put(*lane, *x);
        }
    }
    lanes.iter().chain(rest).fold(start, |all, x| put(all, *x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_near_the_exact_one() {
        for count in [1_u16, 7, 16, 50, 1000] {
            let logits = (0..count).map(|i| (f32::from(i * 37 % 101) - 50.0) / 3.0);
            let logits: Vec<f32> = logits.collect();
            let exact: Vec<f64> = logits.iter().map(|x| f64::from(*x).exp()).collect();
            let total: f64 = exact.iter().sum();
            let mut law = vec![0.0; logits.len()];
            let log = softmax(&logits, &mut law);
            assert!((f64::from(log) - total.ln()).abs() < 1e-5);
            for (p, exact) in law.iter().zip(exact) {
                assert!((f64::from(*p) - exact / total).abs() < 1e-6 * exact / total + 1e-12);
            }
        }
        let mut law = [0.0; 2];
        assert!(softmax(&[f32::NAN, 1.0], &mut law).is_nan());
    }
}
