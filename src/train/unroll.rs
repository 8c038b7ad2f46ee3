//! The head unrolled over its own outputs, and the gradient of that.
//!
//! Step 0 is the head on true features; every later step feeds each row the output of the step before,
//! as drafting does ("training-time test", Li et al. 2025, arXiv 2503.01840). With x̂ for what a norm
//! makes of x:
//!
//! ```text
//! h = fc(taps), or o of the step before
//! x = [ê; ĥ]                  q = rope(Wq x)   k = rope(Wk x)   v = Wv x
//! r = h + Wo attention(q)     o = r + Wdown(silu(g) u)   where [g; u] = Wgu r̂
//! ```
//!
//! EAGLE-1 has no norm in front of its attention, and its layer's stream is the input itself:
//!
//! ```text
//! h = f, or o of the step before      x = fc [e; h]      r = x + Wo attention(q)
//! ```
//!
//! The gradient goes through the steps backwards. A key of step k is seen by its row at k and at all
//! later steps, so by the time the gradient reaches step k all of that key's gradient is there; the keys
//! of step 0 are seen by every step, and come last.

use rayon::prelude::*;

use super::{
    attention::{Attention, KeyGradients, Keys, Shares},
    batch::Batch,
    frozen::Frozen,
    mat::{Mat, add},
    net::{Form, Gradients, Part, Weights},
    norm::Normed,
};
use crate::{
    TokenId,
    draft::eagle::Version,
    error::Result,
    kernels::{Exec, silu_mul},
};

/// What is unrolled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unroll<'a> {
    pub(super) form: &'a Form,
    pub(super) weights: &'a Weights,
    pub(super) frozen: &'a Frozen,
    pub(super) batch: &'a Batch,
}

/// Rows before the attention.
#[derive(Debug)]
struct Input {
    origin: Origin,
    /// `[rows, input]`
    x: Mat,
}

/// What these were made of.
#[derive(Debug)]
enum Origin {
    /// EAGLE-3: the two halves.
    Normed { embedding: Normed, stream: Normed },
    /// EAGLE-1: what went through `fc`, `[rows, 2 * hidden]`.
    Joined(Mat),
}

/// What a step leaves for the gradient; rows are queries.
#[derive(Debug)]
struct Step {
    /// Of the later steps.
    input: Option<Input>,
    /// What the queries were made of: rows of step 0, or `input`'s.
    x: Mat,
    q: Mat,
    shares: Vec<Shares>,
    attended: Mat,
    middle: Normed,
    /// The MLP's input.
    y: Mat,
    gate_up: Mat,
    act: Mat,
    /// The output.
    o: Mat,
}

/// A pass forwards.
#[derive(Debug)]
pub(super) struct Pass {
    first: Input,
    rows: Keys,
    own: Vec<Keys>,
    steps: Vec<Step>,
}

impl Pass {
    /// Outputs of a step, `[queries, hidden]`, before the norm.
    pub(super) fn output(&self, step: usize) -> &Mat {
        &self.steps[step].o
    }
}

impl Unroll<'_> {
    /// Unrolls `steps` steps, which the batch must have been packed for.
    pub(super) fn forward(&self, steps: usize) -> Result<Pass> {
        let batch = self.batch;
        let h = match self.form.version {
            Version::Eagle1 => batch.features.clone(),
            Version::Eagle3 => batch.features.times_t(self.weights.get(Part::Fc))?,
        };
        let first = self.input(&batch.tokens, &h)?;
        let rows = self.keys(&first.x, &batch.positions)?;
        let mut pass = Pass {
            rows,
            own: Vec::new(),
            steps: Vec::with_capacity(steps),
            first,
        };
        let mut h = h.gather(batch.rows.iter().copied())?;
        for step in 0..steps {
            let made = self.step(step, &h, &mut pass)?;
            h = made.o.clone();
            pass.steps.push(made);
        }
        Ok(pass)
    }

    fn input(&self, tokens: &[TokenId], h: &Mat) -> Result<Input> {
        let (width, eps) = (self.form.hidden, self.form.eps);
        let embedded = self.frozen.embed(tokens);
        if self.form.version == Version::Eagle1 {
            let joined = beside(&embedded, &h.view(), width)?;
            let x = joined.times_t(self.weights.get(Part::Fc))?;
            let origin = Origin::Joined(joined);
            return Ok(Input { origin, x });
        }
        let embedding = Normed::of(&embedded, width, eps);
        let stream = Normed::of(&h.view(), width, eps);
        let left = embedding.weighted(&self.weights.get(Part::InputNorm).view());
        let right = stream.weighted(&self.weights.get(Part::HiddenNorm).view());
        Ok(Input {
            origin: Origin::Normed { embedding, stream },
            x: beside(&left, &right, width)?,
        })
    }

    fn keys(&self, x: &Mat, positions: &[usize]) -> Result<Keys> {
        let both = x.times_t(self.weights.get(Part::Kv))?;
        let width = self.form.kv_width();
        let (mut k, mut v) = (Vec::new(), Vec::new());
        for row in both.view().chunks(2 * width) {
            k.extend_from_slice(&row[..width]);
            v.extend_from_slice(&row[width..]);
        }
        self.turn(&mut k, width, positions, false);
        Ok(Keys {
            k: Mat::new(width, k)?,
            v: Mat::new(width, v)?,
        })
    }

    /// Turns rows by their positions, or back.
    fn turn(&self, rows: &mut [f32], width: usize, positions: &[usize], back: bool) {
        let rope = &self.form.rope;
        let rows = rows.par_chunks_mut(width).zip(positions);
        rows.for_each_init(
            || vec![0.0; rope.width()],
            |table, (row, position)| {
                rope.table(*position, table);
                if back {
                    let half = table.len() / 2;
                    table[half..].iter_mut().for_each(|sin| *sin = -*sin);
                }
                rope.turn(row, table);
            },
        );
    }

    /// Positions of the queries at a step.
    fn positions(&self, step: usize) -> Vec<usize> {
        let rows = self.batch.rows.iter();
        rows.map(|row| self.batch.positions[*row] + step).collect()
    }

    /// Queries are divided by the root of their width.
    fn scale(&self) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "a head is far below 2^24 wide")]
        let width = self.form.head_dim as f32;
        1.0 / width.sqrt()
    }

    fn step(&self, step: usize, h: &Mat, pass: &mut Pass) -> Result<Step> {
        let (form, weights) = (self.form, self.weights);
        let positions = self.positions(step);
        let (input, x) = if step == 0 {
            (None, pass.first.x.gather(self.batch.rows.iter().copied())?)
        } else {
            let input = self.input(&self.batch.follow[step], h)?;
            pass.own.push(self.keys(&input.x, &positions)?);
            let x = input.x.clone();
            (Some(input), x)
        };
        let mut q = x.times_t(weights.get(Part::Q))?.view().to_vec();
        self.turn(&mut q, form.q_width(), &positions, false);
        let scale = self.scale();
        q.iter_mut().for_each(|q| *q *= scale);
        let q = Mat::new(form.q_width(), q)?;
        let (attended, shares) = self.attention(pass, step).forward(&q)?;
        let mut r = attended.times_t(weights.get(Part::O))?.view().to_vec();
        match form.version {
            Version::Eagle1 => add(&mut r, &x.view()),
            Version::Eagle3 => add(&mut r, &h.view()),
        }
        let middle = Normed::of(&r, form.hidden, form.eps);
        let y = middle.weighted(&weights.get(Part::PostNorm).view());
        let y = Mat::new(form.hidden, y)?;
        let gate_up = y.times_t(weights.get(Part::GateUp))?;
        let act = Mat::new(form.intermediate, silu(&gate_up.view(), form.intermediate))?;
        let mut o = act.times_t(weights.get(Part::Down))?.view().to_vec();
        add(&mut o, &r);
        Ok(Step {
            input,
            x,
            q,
            shares,
            attended,
            middle,
            y,
            gate_up,
            act,
            o: Mat::new(form.hidden, o)?,
        })
    }

    fn attention<'p>(&'p self, pass: &'p Pass, step: usize) -> Attention<'p> {
        Attention {
            form: self.form,
            spans: &self.batch.spans,
            rows: &pass.rows,
            own: &pass.own[..step],
        }
    }

    /// Adds the gradient of every weight, from that of every step's outputs, `[queries, hidden]` each.
    pub(super) fn backward(
        &self,
        pass: &Pass,
        outputs: Vec<Vec<f32>>,
        gradients: &mut Gradients,
    ) -> Result<()> {
        let mut rows = KeyGradients::zeros(&pass.rows);
        let mut own: Vec<_> = pass.own.iter().map(KeyGradients::zeros).collect();
        // What the step above wants of the output that it was fed.
        let mut above = Vec::new();
        let steps = pass.steps.iter().zip(outputs).enumerate().rev();
        for (step, (made, mut d)) in steps {
            add(&mut d, &above);
            let (dq, dh) = self.layer(made, d, gradients, |q, seen| {
                let attention = self.attention(pass, step);
                attention.backward(q, &made.shares, seen, &mut rows, &mut own[..step])
            })?;
            let dq = self.unturned(&dq, step)?;
            gradients.linear(Part::Q, &dq, &made.x)?;
            let dx = dq.times(self.weights.get(Part::Q))?;
            above = dh;
            if let Some(input) = &made.input {
                let keys = &own[step - 1];
                let mut dx = dx.view().to_vec();
                let positions = self.positions(step);
                add(
                    &mut dx,
                    &self
                        .key_input(keys, &input.x, &positions, gradients)?
                        .view(),
                );
                self.inputs(input, &dx, &mut above, gradients)?;
            } else {
                self.first(pass, &rows, &dx, &above, gradients)?;
            }
        }
        Ok(())
    }

    /// The gradient from a layer's output to its attention's queries, and to the stream that both are
    /// added to.
    fn layer(
        &self,
        made: &Step,
        d: Vec<f32>,
        gradients: &mut Gradients,
        attention: impl FnOnce(&Mat, &Mat) -> Result<Mat>,
    ) -> Result<(Mat, Vec<f32>)> {
        let (form, weights) = (self.form, self.weights);
        let mut dr = d.clone();
        let d = Mat::new(form.hidden, d)?;
        gradients.linear(Part::Down, &d, &made.act)?;
        let act = d.times(weights.get(Part::Down))?;
        let gate_up = silu_gradient(&made.gate_up.view(), &act.view(), form.intermediate);
        let gate_up = Mat::new(2 * form.intermediate, gate_up)?;
        gradients.linear(Part::GateUp, &gate_up, &made.y)?;
        let dy = gate_up.times(weights.get(Part::GateUp))?;
        let dy = dy.view();
        let norm = weights.get(Part::PostNorm);
        made.middle
            .weight_gradient(&dy, gradients.get_mut(Part::PostNorm));
        made.middle.input_gradient(&dy, &norm.view(), &mut dr);
        let da = Mat::new(form.hidden, dr.clone())?;
        gradients.linear(Part::O, &da, &made.attended)?;
        let seen = da.times(weights.get(Part::O))?;
        Ok((attention(&made.q, &seen)?, dr))
    }

    /// The gradient of queries before they were turned and scaled.
    fn unturned(&self, dq: &Mat, step: usize) -> Result<Mat> {
        let width = dq.cols();
        let mut dq = dq.view().to_vec();
        self.turn(&mut dq, width, &self.positions(step), true);
        let scale = self.scale();
        dq.iter_mut().for_each(|q| *q *= scale);
        Mat::new(width, dq)
    }

    /// The gradient of what keys and values were made of.
    fn key_input(
        &self,
        keys: &KeyGradients,
        x: &Mat,
        positions: &[usize],
        gradients: &mut Gradients,
    ) -> Result<Mat> {
        let width = self.form.kv_width();
        let mut k = keys.k.clone();
        self.turn(&mut k, width, positions, true);
        let mut both = Vec::with_capacity(2 * k.len());
        for (k, v) in k.chunks(width).zip(keys.v.chunks(width)) {
            both.extend_from_slice(k);
            both.extend_from_slice(v);
        }
        let both = Mat::new(2 * width, both)?;
        gradients.linear(Part::Kv, &both, x)?;
        both.times(self.weights.get(Part::Kv))
    }

    /// From the gradient of an input, and of the layer's stream in `h`, to the weights that they were made
    /// with, and to `h`.
    fn inputs(
        &self,
        input: &Input,
        dx: &[f32],
        h: &mut [f32],
        gradients: &mut Gradients,
    ) -> Result<()> {
        let width = self.form.hidden;
        let (embedding, stream) = match &input.origin {
            Origin::Normed { embedding, stream } => (embedding, stream),
            Origin::Joined(joined) => {
                // The stream is the input.
                add(h, dx);
                let d = Mat::new(width, h.to_vec())?;
                gradients.linear(Part::Fc, &d, joined)?;
                let both = d.times(self.weights.get(Part::Fc))?;
                let both = both.view();
                for (h, both) in h.chunks_mut(width).zip(both.chunks(2 * width)) {
                    h.copy_from_slice(&both[width..]);
                }
                return Ok(());
            }
        };
        let rows = || dx.chunks(2 * width);
        let left: Vec<f32> = rows().flat_map(|row| row[..width].to_vec()).collect();
        let right: Vec<f32> = rows().flat_map(|row| row[width..].to_vec()).collect();
        let norm = self.weights.get(Part::HiddenNorm);
        embedding.weight_gradient(&left, gradients.get_mut(Part::InputNorm));
        stream.weight_gradient(&right, gradients.get_mut(Part::HiddenNorm));
        stream.input_gradient(&right, &norm.view(), h);
        Ok(())
    }

    /// From the gradients of step 0 to `fc`: of its keys, of its queries' inputs and of their stream.
    fn first(
        &self,
        pass: &Pass,
        keys: &KeyGradients,
        queries: &Mat,
        h: &[f32],
        gradients: &mut Gradients,
    ) -> Result<()> {
        let (batch, width) = (self.batch, self.form.hidden);
        let dx = self.key_input(keys, &pass.first.x, &batch.positions, gradients)?;
        let mut dx = dx.view().to_vec();
        let mut dh = vec![0.0; batch.tokens.len() * width];
        let (queries, wide) = (queries.view(), self.form.input());
        for (query, row) in batch.rows.iter().enumerate() {
            let from = &queries[query * wide..(query + 1) * wide];
            add(&mut dx[row * wide..(row + 1) * wide], from);
            let from = &h[query * width..(query + 1) * width];
            add(&mut dh[row * width..(row + 1) * width], from);
        }
        self.inputs(&pass.first, &dx, &mut dh, gradients)?;
        match self.form.version {
            Version::Eagle1 => Ok(()),
            Version::Eagle3 => gradients.linear(Part::Fc, &Mat::new(width, dh)?, &batch.features),
        }
    }
}

/// Rows side by side.
fn beside(left: &[f32], right: &[f32], width: usize) -> Result<Mat> {
    let mut both = Vec::with_capacity(left.len() + right.len());
    for (left, right) in left.chunks(width).zip(right.chunks(width)) {
        both.extend_from_slice(left);
        both.extend_from_slice(right);
    }
    Mat::new(2 * width, both)
}

/// `silu(g) u` of rows `[g; u]`.
pub(super) fn silu(gate_up: &[f32], width: usize) -> Vec<f32> {
    let mut act = vec![0.0; gate_up.len() / 2];
    let rows = act.par_chunks_mut(width).zip(gate_up.par_chunks(2 * width));
    rows.for_each(|(act, row)| {
        let (gate, up) = row.split_at(width);
        act.copy_from_slice(gate);
        silu_mul(act, up, Exec::Serial);
    });
    act
}

/// The gradient of `[g; u]` from that of `silu(g) u`.
pub(super) fn silu_gradient(gate_up: &[f32], d: &[f32], width: usize) -> Vec<f32> {
    let mut out = vec![0.0; gate_up.len()];
    let rows = out.par_chunks_mut(2 * width);
    let rows = rows
        .zip(gate_up.par_chunks(2 * width))
        .zip(d.par_chunks(width));
    rows.for_each(|((out, row), d)| {
        let ((gate, up), (dg, du)) = (row.split_at(width), out.split_at_mut(width));
        for ((((dg, du), g), u), d) in dg.iter_mut().zip(du).zip(gate).zip(up).zip(d) {
            let sigmoid = 1.0 / (1.0 + (-g).exp());
            *du = d * g * sigmoid;
            *dg = d * u * sigmoid * (1.0 + g * (1.0 - sigmoid));
        }
    });
    out
}
