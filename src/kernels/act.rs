//! The gate of the feed-forward block, and the exponential.

use super::{
    Exec,
    simd::{Kernel, Lanes, dispatch},
};

/// Values of a parallel task, each of which costs about [`COST`] multiplications.
const CHUNK: usize = 2048;
const COST: usize = 32;

/// `gate = silu(gate) * up`, value by value.
pub fn silu_mul(gate: &mut [f32], up: &[f32], exec: Exec) {
    let work = gate.len() * COST;
    exec.chunks(gate, CHUNK, work, |i, gate| {
        let up = &up[i * CHUNK..][..gate.len()];
        dispatch(SiluMul { gate, up });
    });
}

#[derive(Debug)]
pub(super) struct SiluMul<'a> {
    pub(super) gate: &'a mut [f32],
    pub(super) up: &'a [f32],
}

impl Kernel for SiluMul<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _simd: S) {
        for (gate, up) in self.gate.iter_mut().zip(self.up) {
            *gate = *gate / (1.0 + exp(-*gate)) * up;
        }
    }
}

/// `e^x` within 3 units in the last place, in plain arithmetic so that loops over it vectorise and
/// do not depend on the system's mathematical library. 0 below -87.3, at most e^88; NaN stays NaN.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const LOW: f32 = -87.3;
    const HIGH: f32 = 88.0;
    // Adding it leaves the nearest integer in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; multiples of the first by small integers are exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;

    let inside = x.clamp(LOW, HIGH);
    let rounded = inside * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = inside - n * LN2_HIGH - n * LN2_LOW;
    let mut series = 1.0 / 5040.0;
    for factorial in [720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        series = series * r + 1.0 / factorial;
    }
    let exponent = rounded.to_bits().wrapping_sub(ROUND.to_bits());
    let scale = f32::from_bits(exponent.wrapping_add(127) << 23);
    if x < LOW { 0.0 } else { series * scale }
}
