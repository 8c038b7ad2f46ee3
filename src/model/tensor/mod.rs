//! The llama decoder over candle tensors, for devices.
//!
//! The network is the one of [`Llama`], moved layer by layer. Matrices of f32, f16 and bf16 stay as
//! they are stored, and a product is made in the type of its matrix: its input is rounded to that
//! type, and so is what it gives. Quantised matrices are unpacked to f32. Everything else (residual
//! stream, norms, rotary embedding, attention, keys and values) is f32.
//!
//! What comes before the first layer and what a drafter asks for beside passes ([`Target::embed`],
//! [`Target::final_norm`], [`Target::head`]) is computed in host memory by the slice kernels; taps
//! are handed out there too, since EAGLE heads run on the CPU.
//!
//! A row whose keys are not finite spoils the rows of its span of the same pass: what is masked is
//! multiplied by zero, not skipped.

mod attention;
mod block;
mod invariance;
mod linear;
mod pass;

use std::collections::BTreeMap;

use candle_core::{Device, DeviceLocation, Tensor};

pub use invariance::RowInvariance;

use super::{
    block::Shape,
    decoder::Forward,
    dtype::Dtype,
    limits::Limits,
    load::Checkpoint,
    rows::Rows,
    target::{Llama, LoadOptions, Target},
};
use crate::{
    Matrix, TokenId,
    cache::{KvCache, Txn},
    error::{ErrorKind, Result},
    kernels::Format,
};
use block::{Block, rms_norm};
use linear::Linear;
use pass::Pass;

/// A llama decoder on a device.
///
/// The bits of a row may depend on the rows it is fed with; [`RowInvariance`] says what was found
/// when it was loaded.
#[derive(Debug)]
pub struct TensorLlama {
    /// Embedding, final norm and head in host memory; its layers have moved to `layers`.
    host: Llama,
    device: Device,
    layers: Vec<Block>,
    norm: Tensor,
    lm_head: Linear,
    invariance: RowInvariance,
}

impl TensorLlama {
    /// Loads the network of `checkpoint` to `device` and measures its row invariance.
    ///
    /// # Errors
    /// Naming the tensor that cannot be read or converted, or a type of `options` that a device does
    /// not compute with; a device that fails.
    pub fn load(checkpoint: &Checkpoint, options: &LoadOptions, device: &Device) -> Result<Self> {
        Self::load_with(checkpoint, options, device, &mut |_, _| {})
    }

    /// As [`load`](Self::load); `progress` is called with the number of tensors read, and of all.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(
        checkpoint: &Checkpoint,
        options: &LoadOptions,
        device: &Device,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        for (name, dtype) in [
            ("dtype", Some(options.dtype)),
            ("head-dtype", options.head_dtype),
        ] {
            let accepted = matches!(
                dtype,
                None | Some(Dtype::AsStored | Dtype::To(Format::F32 | Format::F16 | Format::BF16))
            );
            if !accepted {
                return Err(ErrorKind::Setting {
                    name,
                    value: dtype.unwrap_or_default().to_string(),
                    accepted: "accepted on a device are f32, bf16, f16 and as-stored (quantised \
                               matrices become f32)"
                        .to_owned(),
                }
                .into());
            }
        }
        Self::of(Llama::load_with(checkpoint, options, progress)?, device)
    }

    /// Moves `host` to `device` and measures its row invariance.
    ///
    /// # Errors
    /// A device that fails, or has no room.
    pub fn of(mut host: Llama, device: &Device) -> Result<Self> {
        let layers = std::mem::take(&mut host.decoder.layers).into_iter();
        let layers = layers.map(|layer| Block::of(&layer, device));
        let mut model = Self {
            device: device.clone(),
            layers: layers.collect::<Result<_>>()?,
            norm: Tensor::new(host.decoder.norm.as_slice(), device)?,
            lm_head: Linear::of(host.decoder.lm_head.weight(), device)?,
            invariance: RowInvariance::default(),
            host,
        };
        model.invariance = RowInvariance::measure(&model)?;
        Ok(model)
    }

    /// Whether a row's bits were found to depend on the rows it is fed with.
    #[must_use]
    pub fn invariance(&self) -> &RowInvariance {
        &self.invariance
    }

    /// What was loaded, and where, in a line.
    #[must_use]
    pub fn describe(&self) -> String {
        let place = match self.device.location() {
            DeviceLocation::Cpu => "candle's cpu".to_owned(),
            DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
            DeviceLocation::Metal { gpu_id } => format!("metal:{gpu_id}"),
        };
        let bytes = self.layers.iter().map(Block::bytes).sum::<usize>() + self.lm_head.bytes();
        format!(
            "llama, {} layers of {}, {} tokens, {}.{} MB of matrices on {place}, row_invariant: {}",
            self.layers(),
            self.hidden(),
            self.vocab(),
            bytes / 1_000_000,
            bytes / 100_000 % 10,
            self.invariance
        )
    }

    fn shape(&self) -> &Shape {
        &self.host.decoder.shape
    }

    fn limits(&self) -> Limits<'_> {
        Limits {
            layers: self.layers.len(),
            device: Some(&self.device),
            ..self.host.decoder.limits()
        }
    }

    /// `[rows, hidden]` of the last tap to `[rows, vocab]`.
    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        let normed = rms_norm(x, &self.norm, self.shape().eps)?;
        self.lm_head.apply(&normed)
    }
}

impl Target for TensorLlama {
    fn vocab(&self) -> usize {
        self.host.vocab()
    }

    fn context(&self) -> usize {
        self.host.context()
    }

    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn hidden(&self) -> usize {
        self.host.hidden()
    }

    fn new_cache(&self, slots: usize) -> KvCache {
        let shape = self.shape();
        let heads = (shape.kv_heads, shape.head_dim);
        KvCache::on_device(self.layers(), heads, slots, self.device.clone())
    }

    fn row_invariant(&self) -> bool {
        self.invariance.holds()
    }

    fn embed(&self, tokens: &[TokenId]) -> Matrix {
        self.host.embed(tokens)
    }

    fn final_norm(&self, x: &mut Matrix) {
        self.host.final_norm(x);
    }

    fn head(&self, normed: &Matrix) -> Matrix {
        self.host.head(normed)
    }

    fn forward(&self, rows: &Rows, txn: &mut Txn<'_>, taps: &[usize]) -> Result<Forward> {
        self.limits().check(rows, txn, taps)?;
        let shape = self.shape();
        let pass = Pass::new(rows, txn, shape, &self.device, self.context())?;
        let embedded = self.embed(rows.tokens());
        let at = (rows.len(), shape.hidden);
        let mut x = Tensor::from_slice(embedded.as_slice(), at, &self.device)?;
        let mut streams = BTreeMap::new();
        for (i, layer) in self.layers.iter().enumerate() {
            if taps.contains(&i) {
                streams.insert(i, x.clone());
            }
            x = layer.forward(i, &x, txn, &pass)?;
        }
        streams.insert(self.layers(), x.clone());
        let tapped: Vec<&Tensor> = taps.iter().map(|tap| &streams[tap]).collect();
        let taps = match tapped[..] {
            [] => None,
            _ => Some(matrix(&Tensor::cat(&tapped, 1)?)?),
        };
        let wanted: Vec<u32> = rows
            .wanted()
            .iter()
            .map(|row| index(*row))
            .collect::<Result<_>>()?;
        let logits = if wanted.is_empty() {
            Matrix::zeros(0, self.vocab())
        } else {
            let wanted = Tensor::new(wanted, &self.device)?;
            matrix(&self.logits(&x.index_select(&wanted, 0)?)?)?
        };
        Ok(Forward { logits, taps })
    }
}

/// A row's index as candle takes it.
fn index(row: usize) -> Result<u32> {
    u32::try_from(row)
        .map_err(|_| ErrorKind::Rows(format!("{row} rows, accepted are fewer than 2^32")).into())
}

/// Brings `[rows, cols]` to host memory.
fn matrix(x: &Tensor) -> Result<Matrix> {
    let cols = x.dim(1)?;
    Ok(Matrix::new(cols, x.flatten_all()?.to_vec1()?))
}
