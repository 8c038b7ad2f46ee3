//! Several tests, one alpha: Holm's step-down method (1979).
//!
//! The chance that any true hypothesis is rejected stays below alpha, whatever the tests have to do with
//! one another. The least p-value is multiplied by the number of tests, the next by one less, and so
//! on; an adjusted value is never below one of a smaller p-value.

/// The adjusted p-values, in the order given: reject where one is below alpha.
///
/// ```
/// let adjusted = eyrie_verifier::holm::holm(&[0.01, 0.04, 0.03]);
/// assert_eq!(adjusted, [0.03, 0.06, 0.06]);
/// ```
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut adjusted = vec![0.0; p_values.len()];
    let (mut least, mut left) = (0.0f64, crate::number::float(p_values.len() as u64));
    for i in order {
        least = least.max((left * p_values[i]).min(1.0));
        adjusted[i] = least;
        left -= 1.0;
    }
    adjusted
}
