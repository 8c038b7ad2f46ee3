//! Start values of an EAGLE-1 head: the target's last layer, in the coordinates of the normed last stream.
//!
//! Such a head reads and writes features f = w s / |s|, of streams s and the weight w of the target's final
//! norm. `fc` hands the feature on, so attention and MLP read f where the target's layer reads a stream
//! normed with a weight of its own: their columns are multiplied by that over w. What they add goes to f
//! in place of s: their rows are multiplied by w over the streams' length.

use super::{
    frozen::floats,
    net::{Part, Weights},
    random::Random,
    start::{Start, scales},
};
use crate::error::Result;

/// Spread of small random weights.
const SMALL: f64 = 0.02;
/// The least weight of a norm that is divided by.
const LEAST: f32 = 1e-3;

/// The weights to begin with.
pub(super) fn weights(start: &Start<'_>) -> Result<Weights> {
    let (form, hidden) = (start.form, start.form.hidden);
    let last = floats(start.checkpoint, "model.norm.weight")?;
    let taps = start
        .seen
        .first()
        .map_or(1, |seen| seen.taps.cols() / hidden);
    let length = scales(start.seen, taps)[taps - 1];
    let over = |norm: &[f32]| -> Vec<f32> {
        let pairs = norm.iter().zip(&last);
        let over = pairs.map(|(norm, last)| norm / last.abs().max(LEAST).copysign(*last));
        over.collect()
    };
    let read = |mut matrix: Vec<f32>, norm: &[f32]| {
        for row in matrix.chunks_mut(hidden) {
            row.iter_mut().zip(norm).for_each(|(x, norm)| *x *= norm);
        }
        matrix
    };
    let written = |mut matrix: Vec<f32>| {
        let width = matrix.len() / hidden;
        for (row, last) in matrix.chunks_mut(width).zip(&last) {
            row.iter_mut().for_each(|x| *x *= last / length);
        }
        matrix
    };
    let before = over(&start.tensor("input_layernorm")?);
    let mut random = Random::new(start.seed);
    Weights::new(form, |part| {
        Ok(match part {
            Part::Fc => {
                let mut fc = random.values(hidden * 2 * hidden, SMALL);
                for (i, row) in fc.chunks_mut(2 * hidden).enumerate() {
                    row[hidden + i] += 1.0;
                }
                fc
            }
            Part::Q => read(start.tensor("self_attn.q_proj")?, &before),
            Part::Kv => {
                let mut kv = start.repeated("self_attn.k_proj")?;
                kv.append(&mut start.repeated("self_attn.v_proj")?);
                read(kv, &before)
            }
            Part::O => written(start.tensor("self_attn.o_proj")?),
            Part::PostNorm => over(&start.tensor("post_attention_layernorm")?),
            Part::GateUp => {
                let mut gate_up = start.tensor("mlp.gate_proj")?;
                gate_up.append(&mut start.tensor("mlp.up_proj")?);
                gate_up
            }
            Part::Down => written(start.tensor("mlp.down_proj")?),
            Part::InputNorm | Part::HiddenNorm | Part::Norm => Vec::new(),
        })
    })
}
