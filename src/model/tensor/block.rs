//! One decoder layer.

use candle_core::{Device, Tensor};
use candle_nn::{ops, rotary_emb::rope};

use super::{attention::attend, linear::Linear, pass::Pass};
use crate::{
    cache::Txn,
    error::{ErrorKind, Result},
    model::block,
};

/// `model.layers.N`.
#[derive(Debug)]
pub(super) struct Block {
    input_layernorm: Tensor,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    post_attention_layernorm: Tensor,
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl Block {
    /// Moves the layer of a llama.
    ///
    /// # Errors
    /// If the layer is another's, or its tensors cannot be moved.
    pub(super) fn of(host: &block::Block, device: &Device) -> Result<Self> {
        let linear = |linear: &crate::model::Linear| Linear::of(linear.weight(), device);
        let norm = |norm: &[f32]| Tensor::new(norm, device);
        let (block::Block { mlp, .. }, attention) = (host, &host.self_attn);
        let (Some(input_layernorm), None, None) =
            (&host.input_layernorm, &attention.qk_norm, attention.window)
        else {
            let what = "layers with an input norm, without norms of queries or a window";
            return Err(ErrorKind::Setting {
                name: "device",
                value: "a layer of another kind".to_owned(),
                accepted: format!("accepted are {what}"),
            }
            .into());
        };
        Ok(Self {
            input_layernorm: norm(input_layernorm)?,
            q_proj: linear(&attention.q_proj)?,
            k_proj: linear(&attention.k_proj)?,
            v_proj: linear(&attention.v_proj)?,
            o_proj: linear(&attention.o_proj)?,
            post_attention_layernorm: norm(&host.post_attention_layernorm)?,
            gate_proj: linear(&mlp.gate_proj)?,
            up_proj: linear(&mlp.up_proj)?,
            down_proj: linear(&mlp.down_proj)?,
        })
    }

    /// `x`, `[rows, hidden]`, with the layer's two residuals; the rows' keys and values are written
    /// as `layer` of the cache.
    pub(super) fn forward(
        &self,
        layer: usize,
        x: &Tensor,
        txn: &mut Txn<'_>,
        pass: &Pass<'_>,
    ) -> Result<Tensor> {
        let shape = pass.shape;
        let normed = rms_norm(x, &self.input_layernorm, shape.eps)?;
        let heads = |linear: &Linear, count| by_head(&linear.apply(&normed)?, count);
        let turn = |x: Tensor| -> Result<Tensor> {
            Ok(rope(&x.unsqueeze(0)?, &pass.cos, &pass.sin)?.squeeze(0)?)
        };
        let q = turn(heads(&self.q_proj, shape.heads)?)?;
        let k = turn(heads(&self.k_proj, shape.kv_heads)?)?;
        let v = heads(&self.v_proj, shape.kv_heads)?;
        let (k, v) = txn.scatter(layer, &pass.places, &k, &v)?;
        let reach = |span| attend(&q, &k, &v, span);
        let attended = pass.spans.iter().map(reach).collect::<Result<Vec<_>>>()?;
        let attended = Tensor::cat(&attended, 1)?.transpose(0, 1)?;
        let x = (x + self.o_proj.apply(&attended.flatten_from(1)?)?)?;

        let normed = rms_norm(&x, &self.post_attention_layernorm, shape.eps)?;
        let gate = self.gate_proj.apply(&normed)?.silu()?;
        let up = self.up_proj.apply(&normed)?;
        Ok((x + self.down_proj.apply(&(gate * up)?)?)?)
    }

    pub(super) fn bytes(&self) -> usize {
        let all = [
            &self.q_proj,
            &self.k_proj,
            &self.v_proj,
            &self.o_proj,
            &self.gate_proj,
            &self.up_proj,
            &self.down_proj,
        ];
        all.iter().map(|linear| linear.bytes()).sum()
    }
}

/// `[rows, hidden]`, normed.
pub(super) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    Ok(ops::rms_norm(x, weight, eps)?)
}

/// `[rows, heads * head_dim]` to `[heads, rows, head_dim]`, contiguous.
fn by_head(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let x = x.reshape((rows, heads, width / heads))?.transpose(0, 1)?;
    Ok(x.contiguous()?)
}
