//! Attention of an unrolled head.
//!
//! Drafting from row i, step k sees the keys of the true rows up to i and those that it made itself at
//! the steps 1 to k: no other row's. So step 0 has whole matrices of keys, and every later step adds one
//! key a row, seen by that row alone:
//!
//! ```text
//! row i, step 2     K0[0] … K0[i]   k1[i]  k2[i]
//! ```
//!
//! A task is one sequence and one key head; tasks run in parallel and are added up in order.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    mat::{Mat, add, dot},
    net::Form,
};
use crate::error::Result;

/// A sequence in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Its rows of step 0, from its first token's.
    pub(super) rows: Range<usize>,
    /// Its rows that are unrolled: its last ones.
    pub(super) queries: Range<usize>,
}

impl Span {
    /// The row of step 0, in its sequence, that its first query is.
    fn first(&self) -> usize {
        self.rows.len() - self.queries.len()
    }
}

/// Keys and values, `[rows, kv_heads * head_dim]`.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) k: Mat,
    pub(super) v: Mat,
}

/// Gradients of keys and values.
#[derive(Clone, Debug)]
pub(super) struct KeyGradients {
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
}

impl KeyGradients {
    pub(super) fn zeros(of: &Keys) -> Self {
        let zeros = |mat: &Mat| vec![0.0; mat.rows() * mat.cols()];
        Self {
            k: zeros(&of.k),
            v: zeros(&of.v),
        }
    }
}

/// How much each query took of each key, of one task.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    /// `[queries, rows]`, zero where a key is not seen.
    rows: Mat,
    /// `[queries, steps]`
    own: Vec<f32>,
}

/// What attends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention<'a> {
    pub(super) form: &'a Form,
    pub(super) spans: &'a [Span],
    /// Of step 0.
    pub(super) rows: &'a Keys,
    /// Of steps 1 to this one.
    pub(super) own: &'a [Keys],
}

impl Attention<'_> {
    fn tasks(&self) -> Vec<(&Span, usize)> {
        let heads = 0..self.form.kv_heads;
        let spans = self.spans.iter();
        spans
            .flat_map(|span| heads.clone().map(move |head| (span, head)))
            .collect()
    }

    /// Queries of a key head.
    fn group(&self) -> usize {
        self.form.heads / self.form.kv_heads
    }

    /// Columns `[head * width, (head + 1) * width)` of some rows, as rows of a head's width.
    fn slice(&self, mat: &Mat, rows: &Range<usize>, head: usize, heads: usize) -> Result<Mat> {
        let (cols, view) = (mat.cols(), mat.view());
        Mat::new(
            self.form.head_dim,
            cut(&view, cols, rows, head, heads * self.form.head_dim),
        )
    }

    /// What `q`, `[queries, heads * head_dim]`, turned and scaled, see: `[queries, heads * head_dim]`.
    pub(super) fn forward(&self, q: &Mat) -> Result<(Mat, Vec<Shares>)> {
        let tasks = self.tasks();
        let done = tasks.par_iter().map(|(span, head)| {
            let q = self.slice(q, &span.queries, *head, self.group())?;
            self.see(span, *head, &q)
        });
        let done: Vec<_> = done.collect::<Result<_>>()?;
        let mut out = vec![0.0; q.rows() * q.cols()];
        let width = self.group() * self.form.head_dim;
        let mut shares = Vec::with_capacity(done.len());
        for ((span, head), (seen, share)) in tasks.iter().zip(done) {
            paste(&mut out, q.cols(), &span.queries, *head, width, &seen);
            shares.push(share);
        }
        Ok((Mat::new(q.cols(), out)?, shares))
    }

    fn see(&self, span: &Span, head: usize, q: &Mat) -> Result<(Vec<f32>, Shares)> {
        let k = self.slice(&self.rows.k, &span.rows, head, 1)?;
        let v = self.slice(&self.rows.v, &span.rows, head, 1)?;
        let own = self.own_of(span, head);
        let steps = own.len();
        let (group, width) = (self.group(), self.form.head_dim);
        let scores = q.times_t(&k)?;
        let mut rows = scores.view().to_vec();
        let mut mine = vec![0.0; q.rows() * steps];
        let queries = q.view();
        for (at, (scores, q)) in rows
            .chunks_mut(k.rows())
            .zip(queries.chunks(width))
            .enumerate()
        {
            let query = at / group;
            let (seen, hidden) = scores.split_at_mut(span.first() + query + 1);
            hidden.fill(0.0);
            let mine = &mut mine[at * steps..(at + 1) * steps];
            for (score, (k, _)) in mine.iter_mut().zip(&own) {
                *score = dot(q, &k[query * width..(query + 1) * width]);
            }
            softmax(seen, mine);
        }
        let rows = Mat::new(k.rows(), rows)?;
        let mut out = rows.times(&v)?.view().to_vec();
        for (at, out) in out.chunks_mut(width).enumerate() {
            let query = at / group;
            for (share, (_, v)) in mine[at * steps..].iter().zip(&own) {
                for (out, v) in out.iter_mut().zip(&v[query * width..(query + 1) * width]) {
                    *out += share * v;
                }
            }
        }
        Ok((out, Shares { rows, own: mine }))
    }

    /// Keys and values that the queries of a span made themselves, by step.
    fn own_of(&self, span: &Span, head: usize) -> Vec<(Vec<f32>, Vec<f32>)> {
        let cols = self.form.kv_width();
        let of = |mat: &Mat| cut(&mat.view(), cols, &span.queries, head, self.form.head_dim);
        let own = self.own.iter();
        own.map(|keys| (of(&keys.k), of(&keys.v))).collect()
    }

    /// The gradient of `q` from that of what they saw, `d`; those of keys and values are added.
    pub(super) fn backward(
        &self,
        q: &Mat,
        shares: &[Shares],
        d: &Mat,
        rows: &mut KeyGradients,
        own: &mut [KeyGradients],
    ) -> Result<Mat> {
        let tasks = self.tasks();
        let done = tasks.par_iter().zip(shares).map(|((span, head), shares)| {
            let q = self.slice(q, &span.queries, *head, self.group())?;
            let d = self.slice(d, &span.queries, *head, self.group())?;
            self.gradients(span, *head, (&q, &d), shares)
        });
        let done: Vec<Task> = done.collect::<Result<_>>()?;
        let mut dq = vec![0.0; q.rows() * q.cols()];
        let (head_dim, cols) = (self.form.head_dim, self.form.kv_width());
        let width = self.group() * head_dim;
        for ((span, head), done) in tasks.iter().zip(done) {
            paste(&mut dq, q.cols(), &span.queries, *head, width, &done.q);
            let give = |to: &mut [f32], at: &Range<usize>, from: &[f32]| {
                paste(to, cols, at, *head, head_dim, from);
            };
            give(&mut rows.k, &span.rows, &done.k.view());
            give(&mut rows.v, &span.rows, &done.v.view());
            for (own, (k, v)) in own.iter_mut().zip(&done.own) {
                give(&mut own.k, &span.queries, k);
                give(&mut own.v, &span.queries, v);
            }
        }
        Mat::new(q.cols(), dq)
    }

    fn gradients(
        &self,
        span: &Span,
        head: usize,
        (q, d): (&Mat, &Mat),
        shares: &Shares,
    ) -> Result<Task> {
        let k = self.slice(&self.rows.k, &span.rows, head, 1)?;
        let v = self.slice(&self.rows.v, &span.rows, head, 1)?;
        let own = self.own_of(span, head);
        let (steps, group, width) = (own.len(), self.group(), self.form.head_dim);
        let mut own_gradients: Vec<(Vec<f32>, Vec<f32>)> = own
            .iter()
            .map(|(k, v)| (vec![0.0; k.len()], vec![0.0; v.len()]))
            .collect();
        let mut scores = d.times_t(&v)?.view().to_vec();
        let (share, queries, given) = (shares.rows.view(), q.view(), d.view());
        let mut dq = vec![0.0; q.rows() * width];
        let per_query = scores
            .chunks_mut(k.rows())
            .zip(share.chunks(k.rows()))
            .zip(queries.chunks(width).zip(given.chunks(width)))
            .zip(dq.chunks_mut(width));
        for (at, (((ds, share), (q, d)), dq)) in per_query.enumerate() {
            let here = (at / group) * width..(at / group + 1) * width;
            let mine = &shares.own[at * steps..(at + 1) * steps];
            let ds_own: Vec<f32> = own.iter().map(|(_, v)| dot(d, &v[here.clone()])).collect();
            let along = dot(ds, share) + dot(&ds_own, mine);
            for (ds, share) in ds.iter_mut().zip(share) {
                *ds = share * (*ds - along);
            }
            for (step, (share, ds)) in mine.iter().zip(ds_own).enumerate() {
                let ds = share * (ds - along);
                let (dk, dv) = &mut own_gradients[step];
                let k = &own[step].0[here.clone()];
                for (i, at) in here.clone().enumerate() {
                    dq[i] += ds * k[i];
                    dk[at] += ds * q[i];
                    dv[at] += share * d[i];
                }
            }
        }
        let scores = Mat::new(k.rows(), scores)?;
        add(&mut dq, &scores.times(&k)?.view());
        Ok(Task {
            q: dq,
            k: scores.t_times(q)?,
            v: shares.rows.t_times(d)?,
            own: own_gradients,
        })
    }
}

/// Gradients of one task.
struct Task {
    q: Vec<f32>,
    k: Mat,
    v: Mat,
    own: Vec<(Vec<f32>, Vec<f32>)>,
}

/// The columns of `head`, `width` wide, of some rows.
fn cut(view: &[f32], cols: usize, rows: &Range<usize>, head: usize, width: usize) -> Vec<f32> {
    let mut data = Vec::with_capacity(rows.len() * width);
    for row in view[rows.start * cols..rows.end * cols].chunks(cols) {
        data.extend_from_slice(&row[head * width..(head + 1) * width]);
    }
    data
}

/// Adds `from` to the columns of `head` of some rows.
fn paste(
    to: &mut [f32],
    cols: usize,
    rows: &Range<usize>,
    head: usize,
    width: usize,
    from: &[f32],
) {
    let rows = to[rows.start * cols..rows.end * cols].chunks_mut(cols);
    for (row, from) in rows.zip(from.chunks(width)) {
        add(&mut row[head * width..(head + 1) * width], from);
    }
}

/// The softmax over both lists together, in place.
fn softmax(a: &mut [f32], b: &mut [f32]) {
    let peak = a
        .iter()
        .chain(&*b)
        .fold(f32::NEG_INFINITY, |m, x| m.max(*x));
    let mut total = 0.0;
    for x in a.iter_mut().chain(&mut *b) {
        *x = (*x - peak).exp();
        total += *x;
    }
    for x in a.iter_mut().chain(b) {
        *x /= total;
    }
}
