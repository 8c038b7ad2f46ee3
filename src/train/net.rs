//! The network that is trained: its shape, its weights, their gradients.

use rayon::prelude::*;

use super::mat::{CHUNK, Mat, add};
use crate::{draft::eagle::Version, error::Result, kernels::Rope};

/// Widths, and what does not change.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) version: Version,
    pub(super) hidden: usize,
    /// Streams that a feature is made of: those tapped, or (EAGLE-1) the normed last one alone.
    pub(super) taps: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) intermediate: usize,
    pub(super) eps: f32,
    pub(super) rope: Rope,
}

/// A matrix or norm of the network. EAGLE-3 has embedding and stream side by side, each normed, in front
/// of its attention; EAGLE-1 has them side by side in front of `fc`, whose output is the layer's stream and
/// its attention's input, and its last output is read by the output head as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// `[hidden, taps * hidden]`, over taps that were divided by their scales; of EAGLE-1 `[hidden, 2 * hidden]`,
    /// over embedding and feature.
    Fc,
    /// `[1, hidden]`, of the embedding. EAGLE-3.
    InputNorm,
    /// `[1, hidden]`, of the stream. EAGLE-3.
    HiddenNorm,
    /// `[heads * head_dim, input]`
    Q,
    /// `[2 * kv_heads * head_dim, input]`: keys, then values.
    Kv,
    /// `[hidden, heads * head_dim]`
    O,
    /// `[1, hidden]`
    PostNorm,
    /// `[2 * intermediate, hidden]`: gates, then what they let through.
    GateUp,
    /// `[hidden, intermediate]`
    Down,
    /// `[1, hidden]`, before the output head. EAGLE-3.
    Norm,
}

impl Part {
    /// All of them, in the order of their numbers.
    pub(super) const ALL: [Self; 10] = [
        Self::Fc,
        Self::InputNorm,
        Self::HiddenNorm,
        Self::Q,
        Self::Kv,
        Self::O,
        Self::PostNorm,
        Self::GateUp,
        Self::Down,
        Self::Norm,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fc => "fc",
            Self::InputNorm => "input_norm",
            Self::HiddenNorm => "hidden_norm",
            Self::Q => "q",
            Self::Kv => "kv",
            Self::O => "o",
            Self::PostNorm => "post_norm",
            Self::GateUp => "gate_up",
            Self::Down => "down",
            Self::Norm => "norm",
        }
    }
}

impl Form {
    pub(super) fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    pub(super) fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Width of what attention reads.
    pub(super) fn input(&self) -> usize {
        match self.version {
            Version::Eagle1 => self.hidden,
            Version::Eagle3 => 2 * self.hidden,
        }
    }

    /// Rows and columns of a part; one that the network has not has no rows.
    pub(super) fn shape(&self, part: Part) -> (usize, usize) {
        let (h, q, kv, mlp) = (
            self.hidden,
            self.q_width(),
            self.kv_width(),
            self.intermediate,
        );
        match (part, self.version) {
            (Part::Fc, Version::Eagle1) => return (h, 2 * h),
            (Part::InputNorm | Part::HiddenNorm | Part::Norm, Version::Eagle1) => return (0, h),
            _ => {}
        }
        match part {
            Part::Fc => (h, self.taps * h),
            Part::InputNorm | Part::HiddenNorm | Part::PostNorm | Part::Norm => (1, h),
            Part::Q => (q, self.input()),
            Part::Kv => (2 * kv, self.input()),
            Part::O => (h, q),
            Part::GateUp => (2 * mlp, h),
            Part::Down => (h, mlp),
        }
    }
}

/// The weights, by [`Part`].
#[derive(Clone, Debug)]
pub(super) struct Weights(Vec<Mat>);

impl Weights {
    /// The weights that `of` gives for each part.
    pub(super) fn new(form: &Form, mut of: impl FnMut(Part) -> Result<Vec<f32>>) -> Result<Self> {
        let all = Part::ALL.into_iter().map(|part| {
            let (rows, cols) = form.shape(part);
            let values = of(part)?;
            assert_eq!(values.len(), rows * cols, "values of {}", part.name());
            Mat::new(cols, values)
        });
        Ok(Self(all.collect::<Result<_>>()?))
    }

    pub(super) fn get(&self, part: Part) -> &Mat {
        &self.0[part as usize]
    }

    pub(super) fn set(&mut self, part: Part, mat: Mat) {
        self.0[part as usize] = mat;
    }
}

/// A gradient of every weight.
#[derive(Clone, Debug)]
pub(super) struct Gradients(Vec<Vec<f32>>);

impl Gradients {
    pub(super) fn zeros(form: &Form) -> Self {
        let zeros = |part| {
            let (rows, cols) = form.shape(part);
            vec![0.0; rows * cols]
        };
        Self(Part::ALL.into_iter().map(zeros).collect())
    }

    pub(super) fn get(&self, part: Part) -> &[f32] {
        &self.0[part as usize]
    }

    pub(super) fn get_mut(&mut self, part: Part) -> &mut [f32] {
        &mut self.0[part as usize]
    }

    /// The length of all together, whose sums do not depend on the threads.
    pub(super) fn length(&self) -> f64 {
        let square = |chunk: &[f32]| chunk.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
        let squares = self.0.iter().flat_map(|values| {
            let chunks = values.par_chunks(CHUNK).map(square);
            chunks.collect::<Vec<f64>>()
        });
        squares.sum::<f64>().sqrt()
    }

    /// Adds the gradient of a linear layer whose outputs have the gradient `dy` at the inputs `x`.
    pub(super) fn linear(&mut self, part: Part, dy: &Mat, x: &Mat) -> Result<()> {
        let gradient = dy.t_times(x)?;
        add(self.get_mut(part), &gradient.view());
        Ok(())
    }
}
