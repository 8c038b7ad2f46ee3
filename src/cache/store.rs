//! Where keys and values lie.

use std::ops::{Deref, DerefMut, Range};

use candle_core::{DType, Device, Tensor};

use crate::error::Result;

/// Keys and values of all slots, by layer.
#[derive(Debug)]
pub(super) enum Store {
    /// In host memory.
    Host(Vec<Layer>),
    /// On a device of candle's.
    Device(DeviceStore),
}

/// Keys and values of one layer in host memory, `[slots, kv_heads * head_dim]` each.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) k: Lines,
    pub(super) v: Lines,
}

/// Zeros that begin with a cache line, so that no register's worth of a head lies in two. They take
/// memory when they are first written.
#[derive(Debug)]
pub(super) struct Lines {
    values: Vec<f32>,
    place: Range<usize>,
}

impl Lines {
    fn zeros(count: usize) -> Self {
        const LINE: usize = 64;
        let values = vec![0.0; count + LINE / size_of::<f32>()];
        let from = values.as_ptr().align_offset(LINE).min(values.len() - count);
        let place = from..from + count;
        Self { values, place }
    }
}

impl Deref for Lines {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values[self.place.clone()]
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[self.place.clone()]
    }
}

/// Tensors `[kv_heads, slots, head_dim]`, f32. Heads come first so that the keys of some slots are
/// gathered as a product needs them.
///
/// A layer is allocated when it is first written, where a lack of memory is an error of the pass.
#[derive(Debug)]
pub(super) struct DeviceStore {
    pub(super) device: Device,
    shape: (usize, usize, usize),
    layers: Vec<Option<(Tensor, Tensor)>>,
}

/// The slots of a pass's rows as the index of a write, made by [`Txn::places`](super::Txn::places).
#[derive(Clone, Debug)]
pub struct Places(Tensor);

impl Store {
    pub(super) fn host(layers: usize, width: usize, slots: usize) -> Self {
        let layer = |_| Layer {
            k: Lines::zeros(slots * width),
            v: Lines::zeros(slots * width),
        };
        Self::Host((0..layers).map(layer).collect())
    }

    pub(super) fn device(layers: usize, shape: (usize, usize, usize), device: Device) -> Self {
        Self::Device(DeviceStore {
            device,
            shape,
            layers: vec![None; layers],
        })
    }
}

impl DeviceStore {
    /// The index of `slots`, `[kv_heads, slots, head_dim]`.
    pub(super) fn places(&self, slots: &[u32]) -> Result<Places> {
        let (heads, _, width) = self.shape;
        let column = Tensor::from_slice(slots, (1, slots.len(), 1), &self.device)?;
        let index = column.broadcast_as((heads, slots.len(), width))?;
        Ok(Places(index.contiguous()?))
    }

    /// Keys and values of `layer`; `None` before the first write.
    pub(super) fn layer(&self, layer: usize) -> Option<(Tensor, Tensor)> {
        self.layers[layer].clone()
    }

    /// Writes `k` and `v`, contiguous and of the shape of `places`, and gives the layer.
    pub(super) fn write(
        &mut self,
        layer: usize,
        places: &Places,
        k: &Tensor,
        v: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let (keys, values) = match &self.layers[layer] {
            Some(tensors) => tensors.clone(),
            None => {
                let zeros = || Tensor::zeros(self.shape, DType::F32, &self.device);
                let made = (zeros()?, zeros()?);
                self.layers[layer].insert(made).clone()
            }
        };
        keys.scatter_set(&places.0, k, 1)?;
        values.scatter_set(&places.0, v, 1)?;
        Ok((keys, values))
    }
}
