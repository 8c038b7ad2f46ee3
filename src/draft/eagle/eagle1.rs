//! EAGLE-1 (Li et al. 2024, arXiv 2401.15077): the next feature is guessed, the target's own head
//! reads it.
//!
//! ```text
//! f_i                                      the target's stream after its final norm, or a guess
//! x_i = fc([embed(t_{i+1}); f_i])          embedding first
//! o_i = layers(x_i)                        a guess of f_{i+1}: fed back as it is
//! head(o_i)                                guesses t_{i+2}
//! ```
//!
//! Layer 0 reads x without a norm and no norm precedes the head: f is normed already, and o imitates
//! it. Other releases put norms on the embedding, before layer 0 and before the head; they apply when
//! the file has them.

use super::{
    head::{Network, side_by_side},
    parts::{Norm, Parts},
};
use crate::{
    Matrix,
    cache::Txn,
    error::Result,
    kernels::Exec,
    model::{Block, Linear, Pass, Scratch},
};

/// The network of an EAGLE-1 head.
#[derive(Clone, Debug)]
pub(super) struct Eagle1 {
    fc: Linear,
    embed_norm: Option<Norm>,
    layers: Vec<Block>,
    norm: Option<Norm>,
}

impl Eagle1 {
    pub(super) fn read(parts: &mut Parts<'_>) -> Result<Self> {
        let config = parts.config().clone();
        Ok(Self {
            fc: parts.linear("fc", config.fc_bias)?,
            embed_norm: parts.norm_if(config.embed_norm, "embed_norm.weight")?,
            layers: parts.layers(0)?,
            norm: parts.norm_if(config.norm_before_head, "norm.weight")?,
        })
    }
}

impl Network for Eagle1 {
    fn fuse(&self, feature: Matrix, _: Exec) -> Matrix {
        feature
    }

    fn forward(&self, embedded: Matrix, f: &Matrix, txn: &mut Txn<'_>, pass: &Pass<'_>) -> Matrix {
        let embedded = match &self.embed_norm {
            Some(norm) => norm.of(&embedded),
            None => embedded,
        };
        let fused = side_by_side(&embedded, f);
        let mut x = Matrix::zeros(f.rows(), f.cols());
        self.fc.apply(fused.as_slice(), x.as_mut_slice(), pass.exec);
        let mut scratch = Scratch::new(pass.shape, x.rows());
        for (i, layer) in self.layers.iter().enumerate() {
            layer.forward(i, x.as_mut_slice(), txn, pass, &mut scratch);
        }
        x
    }

    fn before_head(&self, o: &Matrix) -> Matrix {
        self.norm.as_ref().map_or(o.clone(), |norm| norm.of(o))
    }

    fn fed_back(&self, o: Matrix) -> Matrix {
        o
    }
}
