//! Start values: the target's last layer, with heads that look at their own token and heads that copy.
//!
//! A head's job begins where the target's last layer was about to work, so a copy of that layer on the
//! tap next to it is a good start; but its attention has never seen an embedding beside the stream, and
//! two things that drafting lives on would have to be found by training:
//!
//! * *What is my own token?* It enters by the embedding half alone. A few heads start with equal random
//!   queries and keys of that half, so that each row attends to rows of equal tokens, itself first.
//! * *What followed it the last time?* Row j holds embed(t(j+1)) and the taps of t(j). A head whose query
//!   reads the embedding and whose key reads, in the low tap, the token t(j) (the low tap still gives
//!   the embedding of its token linearly) finds the rows whose features come of the token that the query
//!   holds; and the embedding half of such a row is the token that followed. One layer copies what a
//!   transformer needs two for.
//!
//! The second is done with R, a random projection of unit embeddings in the slow rotary pairs, B, the
//! ridge map from the low tap to them, and a few coordinates of the stream that the target hardly uses:
//! there fc puts R Bᵀ tap, keys read them, queries are R embed; values are orthonormal slices P of the
//! embedding, and the output matrix puts them back where the output head will find the token,
//! strength · Pᵀ / norm. Only start values: the file is a plain EAGLE-3 head.

use std::mem::take;

use super::{
    TrainError,
    data::Sequence,
    frozen::{Frozen, floats},
    linalg::{orthonormal, principal, ridge, single},
    mat::Mat,
    net::{Form, Part, Weights},
    norm::Normed,
    random::Random,
};
use crate::{
    error::Result,
    model::{config::Config, load::Checkpoint},
};

/// Spread of small random weights.
const SMALL: f64 = 0.02;
/// Spread of the values' embedding half.
const VALUES: f64 = 0.1;
/// Spread of the projection of heads that look at their own token.
const SELF: f64 = 0.06;
/// A rotary pair is slow if it turns by less than a radian in so many positions.
const FAR: f32 = 150.0;
/// Score of equal tokens in a copying head.
const SCORE: f32 = 16.0;
/// Strength of what is copied, in root mean squares of the highest tap.
const STRENGTH: f32 = 1.33;
/// Spread of the coordinates that carry tokens.
const CARRIED: f32 = 3.0;
/// Directions that all embeddings share, which tell no token from another.
const SHARED: usize = 6;
const RIDGE: f64 = 10.0;

/// What start values are made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) form: &'a Form,
    pub(super) frozen: &'a Frozen,
    /// Some sequences.
    pub(super) seen: &'a [Sequence],
    /// What taps are divided by.
    pub(super) scales: &'a [f32],
    pub(super) seed: u64,
}

/// Which key heads do what: those that look at themselves, those that copy; the rest is the target's.
fn roles(kv_heads: usize, head_dim: usize, hidden: usize) -> (usize, usize) {
    let own = kv_heads / 3;
    let copying = (kv_heads * 4 / 9).min(hidden / head_dim);
    (own, copying)
}

/// The root mean square of each tap, but for the first rows of sequences, where targets keep values far
/// beyond all others.
pub(super) fn scales(seen: &[Sequence], taps: usize) -> Vec<f32> {
    let mut sums = vec![(0.0_f64, 0_usize); taps];
    for sequence in seen {
        let width = sequence.taps.cols() / taps;
        for row in 1..sequence.taps.rows() {
            let streams = sequence.taps.row(row).chunks(width);
            for (sum, stream) in sums.iter_mut().zip(streams) {
                sum.0 += stream.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
                sum.1 += width;
            }
        }
    }
    let root = |(sum, count): (f64, usize)| {
        #[expect(clippy::cast_precision_loss, reason = "a count of values")]
        let mean = sum / count.max(1) as f64;
        if mean > 0.0 { single(mean.sqrt()) } else { 1.0 }
    };
    sums.into_iter().map(root).collect()
}

/// The target's last layer and final norm, row-major.
struct Layer {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    norm: Vec<f32>,
}

/// The matrices in the making.
struct Made {
    fc: Vec<f32>,
    hidden_norm: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    o: Vec<f32>,
}

impl Start<'_> {
    /// A matrix or norm of the target's last layer.
    pub(super) fn tensor(&self, name: &str) -> Result<Vec<f32>> {
        let last = self.checkpoint.config().layers - 1;
        floats(
            self.checkpoint,
            &format!("model.layers.{last}.{name}.weight"),
        )
    }

    /// The weights to begin with.
    pub(super) fn weights(&self) -> Result<Weights> {
        let form = self.form;
        let hidden = form.hidden;
        let mut random = Random::new(self.seed);
        let layer = Layer {
            q: self.tensor("self_attn.q_proj")?,
            k: self.repeated("self_attn.k_proj")?,
            v: self.repeated("self_attn.v_proj")?,
            norm: floats(self.checkpoint, "model.norm.weight")?,
        };
        let (q, kv) = (form.q_width(), form.kv_width());
        let beside = |layer: &[f32], rows: usize, left: Vec<f32>| -> Vec<f32> {
            let pairs = left.chunks(hidden).zip(layer.chunks(hidden)).take(rows);
            pairs
                .flat_map(|(a, b)| a.iter().chain(b))
                .copied()
                .collect()
        };
        let mut made = Made {
            fc: self.fuse(random.values(hidden * form.taps * hidden, SMALL)),
            hidden_norm: self.tensor("input_layernorm")?,
            q: beside(&layer.q, q, random.values(q * hidden, SMALL)),
            k: beside(&layer.k, kv, random.values(kv * hidden, SMALL)),
            v: beside(&layer.v, kv, random.values(kv * hidden, VALUES)),
            o: self.tensor("self_attn.o_proj")?,
        };
        let (own, copying) = roles(form.kv_heads, form.head_dim, hidden);
        for head in 0..own {
            self.look_at_itself(head, &mut made, &mut random);
        }
        self.copy(own..own + copying, &layer, &mut made, &mut random)?;
        made.k.append(&mut made.v);
        Weights::new(form, |part| {
            Ok(match part {
                Part::Fc => take(&mut made.fc),
                Part::InputNorm => vec![1.0; hidden],
                Part::HiddenNorm => take(&mut made.hidden_norm),
                Part::Q => take(&mut made.q),
                Part::Kv => take(&mut made.k),
                Part::O => take(&mut made.o),
                Part::PostNorm => self.tensor("post_attention_layernorm")?,
                Part::GateUp => {
                    let mut gate_up = self.tensor("mlp.gate_proj")?;
                    gate_up.append(&mut self.tensor("mlp.up_proj")?);
                    gate_up
                }
                Part::Down => self.tensor("mlp.down_proj")?,
                Part::Norm => layer.norm.clone(),
            })
        })
    }

    /// Keys or values of the target, each head as often as there are heads here for it.
    pub(super) fn repeated(&self, name: &str) -> Result<Vec<f32>> {
        let (form, config) = (self.form, self.checkpoint.config());
        let theirs = self.tensor(name)?;
        let times = form.kv_heads / config.kv_heads;
        let heads = theirs.chunks(form.head_dim * form.hidden);
        let heads = heads.flat_map(|head| std::iter::repeat_n(head, times));
        Ok(heads.flatten().copied().collect())
    }

    /// `fc` that passes the highest tap, undivided, with a little of everything.
    fn fuse(&self, mut fc: Vec<f32>) -> Vec<f32> {
        let (hidden, taps) = (self.form.hidden, self.form.taps);
        for i in 0..hidden {
            fc[i * taps * hidden + (taps - 1) * hidden + i] += self.scales[taps - 1];
        }
        fc
    }

    /// Rows `[head * head_dim, …)` of a matrix of `2 * hidden` columns.
    fn rows_of<'m>(&self, matrix: &'m mut [f32], head: usize) -> &'m mut [f32] {
        let size = self.form.head_dim * 2 * self.form.hidden;
        &mut matrix[head * size..(head + 1) * size]
    }

    /// The query heads of a key head.
    fn queries(&self, head: usize) -> std::ops::Range<usize> {
        let group = self.form.heads / self.form.kv_heads;
        head * group..(head + 1) * group
    }

    fn look_at_itself(&self, head: usize, made: &mut Made, random: &mut Random) {
        let (hidden, width) = (self.form.hidden, self.form.head_dim);
        let projection = random.values(width * hidden, SELF);
        let put = |rows: &mut [f32]| {
            rows.fill(0.0);
            let rows = rows.chunks_mut(2 * hidden).zip(projection.chunks(hidden));
            rows.for_each(|(row, projection)| row[..hidden].copy_from_slice(projection));
        };
        put(self.rows_of(&mut made.k, head));
        for query in self.queries(head) {
            put(self.rows_of(&mut made.q, query));
        }
    }

    /// Makes the key heads `heads` copy.
    fn copy(
        &self,
        heads: std::ops::Range<usize>,
        layer: &Layer,
        made: &mut Made,
        random: &mut Random,
    ) -> Result<()> {
        let (hidden, width) = (self.form.hidden, self.form.head_dim);
        if heads.is_empty() {
            return Ok(());
        }
        let slow = self.slow();
        let (low, own) = (self.low_taps()?, self.own_embeddings()?);
        let to_embedding = ridge(&low, &own, RIDGE)?;
        let read = self.projection(&own, &low.times(&to_embedding)?, slow.len(), random)?;
        // The token of a row, from its low tap: rows of R Bᵀ.
        let token = read.times_t(&to_embedding)?;
        let spread = deviation(&low.times_t(&token)?.view());
        let carriers = self.unused(&layer.norm, slow.len());
        let wide = self.form.taps * hidden;
        for (carrier, token) in carriers.iter().zip(token.view().chunks(hidden)) {
            let row = &mut made.fc[carrier * wide..(carrier + 1) * wide];
            row.fill(0.0);
            for (fc, token) in row.iter_mut().zip(token) {
                *fc = token / spread * CARRIED;
            }
            made.hidden_norm[*carrier] = 1.0;
        }
        let back = spread / CARRIED * self.length(&made.fc)?;
        let slices = orthonormal(&Mat::new(
            hidden,
            random.values(heads.len() * width * hidden, 1.0),
        )?)?;
        let slices = slices.view();
        let strength = STRENGTH * self.scales[self.form.taps - 1];
        for (place, head) in heads.enumerate() {
            let slice = &slices[place * width * hidden..(place + 1) * width * hidden];
            let k = self.rows_of(&mut made.k, head);
            k.fill(0.0);
            for (row, carrier) in slow.iter().zip(&carriers) {
                k[row * 2 * hidden + hidden + carrier] = back;
            }
            let v = self.rows_of(&mut made.v, head);
            v.fill(0.0);
            for (row, slice) in v.chunks_mut(2 * hidden).zip(slice.chunks(hidden)) {
                row[..hidden].copy_from_slice(slice);
            }
            let queries = self.queries(head);
            #[expect(clippy::cast_precision_loss, reason = "a few heads")]
            let strength = strength / queries.len() as f32;
            for query in queries {
                let q = self.rows_of(&mut made.q, query);
                q.fill(0.0);
                for (row, read) in slow.iter().zip(read.view().chunks(hidden)) {
                    q[row * 2 * hidden..][..hidden].copy_from_slice(read);
                }
                let columns = self.form.q_width();
                for (i, norm) in layer.norm.iter().enumerate() {
                    let norm = norm.abs().max(1e-3).copysign(*norm);
                    for d in 0..width {
                        made.o[i * columns + query * width + d] =
                            strength * slice[d * hidden + i] / norm;
                    }
                }
            }
        }
        Ok(())
    }

    /// Values of a head that turn slowly: both halves of slow pairs; of none, of the slowest.
    fn slow(&self) -> Vec<usize> {
        let half = self.form.head_dim / 2;
        let mut table = vec![0.0; self.form.head_dim];
        self.form.rope.table(1, &mut table);
        let turns = |pair: &usize| table[half + pair].abs() <= 1.0 / FAR && table[*pair] > 0.0;
        let mut pairs: Vec<usize> = (0..half).filter(turns).collect();
        if pairs.is_empty() {
            pairs.push(half - 1);
        }
        let second = pairs.iter().map(|pair| pair + half);
        pairs.iter().copied().chain(second).collect()
    }

    /// The low tap of every row but the first ones, divided by its scale.
    fn low_taps(&self) -> Result<Mat> {
        let hidden = self.form.hidden;
        let rows = self.seen.iter().flat_map(|sequence| {
            (1..sequence.taps.rows()).map(move |row| &sequence.taps.row(row)[..hidden])
        });
        let scale = self.scales[0];
        Mat::new(hidden, rows.flatten().map(|x| x / scale).collect())
    }

    /// The embeddings of the same rows' own tokens, normed.
    fn own_embeddings(&self) -> Result<Mat> {
        let hidden = self.form.hidden;
        let tokens: Vec<_> = self
            .seen
            .iter()
            .flat_map(|sequence| sequence.tokens[1..sequence.taps.rows()].iter().copied())
            .collect();
        let normed = Normed::of(&self.frozen.embed(&tokens), hidden, self.form.eps);
        Mat::new(hidden, normed.unit)
    }

    /// R, `[rows, hidden]`, such that a token scores [`SCORE`] with itself as it is read from taps.
    fn projection(&self, own: &Mat, read: &Mat, rows: usize, random: &mut Random) -> Result<Mat> {
        let hidden = self.form.hidden;
        let r = Mat::new(hidden, random.values(rows * hidden, 1.0))?;
        let shared = principal(own, SHARED.min(hidden / 4), random)?;
        let along = r.times_t(&shared)?.times(&shared)?;
        let values = r
            .view()
            .iter()
            .zip(&*along.view())
            .map(|(r, a)| r - a)
            .collect();
        let r = Mat::new(hidden, values)?;
        let (q, k) = (own.times_t(&r)?, read.times_t(&r)?);
        let scores: f64 = (q.view().iter().zip(&*k.view()))
            .map(|(q, k)| f64::from(q * k))
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "a count of rows, and a width")]
        let score = scores / own.rows() as f64 / (self.form.head_dim as f64).sqrt();
        if !(score.is_finite() && score > 0.0) {
            return Err(TrainError::Unfit(format!(
                "tokens cannot be read from tap 1 of the data (score {score}); accepted is a low tap that \
                 still tells tokens apart"
            ))
            .into());
        }
        let factor = single((f64::from(SCORE) / score).sqrt());
        let values = r.view().iter().map(|r| r * factor).collect();
        Mat::new(hidden, values)
    }

    /// The coordinates of the highest tap that move the output least.
    fn unused(&self, norm: &[f32], count: usize) -> Vec<usize> {
        let (hidden, taps) = (self.form.hidden, self.form.taps);
        let mut moments = vec![(0.0_f64, 0.0_f64); hidden];
        let mut rows = 0.0_f64;
        for sequence in self.seen {
            for row in 1..sequence.taps.rows() {
                rows += 1.0;
                let high = &sequence.taps.row(row)[(taps - 1) * hidden..];
                for (moment, x) in moments.iter_mut().zip(high) {
                    moment.0 += f64::from(*x);
                    moment.1 += f64::from(*x).powi(2);
                }
            }
        }
        let moves = |i: &usize| {
            let (sum, square) = moments[*i];
            let variance = square / rows - (sum / rows).powi(2);
            variance.max(0.0).sqrt() * f64::from(norm[*i].abs())
        };
        let mut order: Vec<usize> = (0..hidden).collect();
        order.sort_by(|a, b| moves(a).total_cmp(&moves(b)).then(a.cmp(b)));
        order.truncate(count);
        order
    }

    /// The middle one of the root mean squares of `fc`'s outputs.
    fn length(&self, fc: &[f32]) -> Result<f32> {
        let (hidden, taps) = (self.form.hidden, self.form.taps);
        let few = self.seen.iter().take(40);
        let rows = few
            .flat_map(|sequence| (1..sequence.taps.rows()).map(move |row| sequence.taps.row(row)));
        let scaled = rows.flat_map(|row| {
            let taps = row.chunks(hidden).zip(self.scales);
            taps.flat_map(|(tap, scale)| tap.iter().map(move |x| x / scale))
        });
        let scaled = Mat::new(taps * hidden, scaled.collect())?;
        let h = scaled.times_t(&Mat::new(taps * hidden, fc.to_vec())?)?;
        let normed = Normed::of(&h.view(), hidden, self.form.eps);
        let mut lengths: Vec<f32> = normed.scale.iter().map(|scale| 1.0 / scale).collect();
        lengths.sort_by(f32::total_cmp);
        Ok(lengths.get(lengths.len() / 2).copied().unwrap_or(1.0))
    }
}

/// The standard deviation of all values.
fn deviation(values: &[f32]) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "a count of values")]
    let count = values.len().max(1) as f64;
    let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
    let square = values.iter().map(|x| (f64::from(*x) - mean).powi(2));
    single((square.sum::<f64>() / count).sqrt().max(1e-12))
}

/// Refuses a number of key heads that the target's layer cannot be copied to.
pub(super) fn fits(config: &Config, kv_heads: usize) -> Result<(), TrainError> {
    let (heads, theirs) = (config.heads, config.kv_heads);
    let good = kv_heads > 0 && heads.is_multiple_of(kv_heads) && kv_heads.is_multiple_of(theirs);
    if good {
        return Ok(());
    }
    Err(TrainError::Unfit(format!(
        "{kv_heads} key heads; accepted are divisors of the target's {heads} heads that its {theirs} key \
         heads divide"
    )))
}
