//! A head computed plainly: doubles, every row from the start, straight from the equations.

use std::sync::Arc;

use eyrie::{
    Matrix, TokenId,
    draft::eagle::{Feature, HeadConfig, Version},
    model::Target,
};

use super::heads::Made;

type Row = Vec<f64>;

/// Logits of the rows from the last true one on: the first rows have the taps `taps`, those after
/// them are fed what the row before gave. Row i has the token `tokens[i]`.
pub(crate) fn logits(
    made: &Made,
    target: &Arc<dyn Target>,
    tokens: &[TokenId],
    taps: &Matrix,
) -> Vec<Row> {
    let twin = Twin { made, target };
    let config = &made.config;
    let mut features: Vec<Row> = (0..taps.rows())
        .map(|row| twin.fuse(taps.row(row)))
        .collect();
    // By layer, the keys and values of every row so far.
    let mut caches = vec![Vec::new(); config.layers];
    let mut all = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let output = twin.row(*token, &features[i], i, &mut caches);
        if i + 1 >= taps.rows() {
            all.push(twin.head(&output));
        }
        if i + 1 == features.len() {
            let normed = config.norm_output && config.version == Version::Eagle3;
            features.push(if normed {
                twin.norm("norm", &output)
            } else {
                output
            });
        }
    }
    all
}

struct Twin<'a> {
    made: &'a Made,
    target: &'a Arc<dyn Target>,
}

impl Twin<'_> {
    fn config(&self) -> &HeadConfig {
        &self.made.config
    }

    fn tensor(&self, name: &str) -> Option<Row> {
        let values = self.made.tensors.get(name)?;
        Some(values.iter().map(|x| f64::from(*x)).collect())
    }

    fn norm(&self, name: &str, x: &[f64]) -> Row {
        let weight = self.tensor(&format!("{name}.weight")).expect(name);
        assert_eq!(weight.len(), x.len(), "{name}");
        let mean = x.iter().map(|x| x * x).sum::<f64>() / count(x.len());
        let scale = 1.0 / (mean + self.config().eps).sqrt();
        x.iter().zip(weight).map(|(x, w)| x * scale * w).collect()
    }

    fn optional(&self, name: &str, x: Row) -> Row {
        if self.made.tensors.contains_key(&format!("{name}.weight")) {
            self.norm(name, &x)
        } else {
            x
        }
    }

    fn linear(&self, name: &str, x: &[f64]) -> Row {
        let weight = self.tensor(&format!("{name}.weight")).expect(name);
        let bias = self.tensor(&format!("{name}.bias"));
        let rows = weight.chunks_exact(x.len()).enumerate();
        rows.map(|(j, w)| {
            let dot: f64 = w.iter().zip(x).map(|(w, x)| w * x).sum();
            dot + bias.as_ref().map_or(0.0, |bias| bias[j])
        })
        .collect()
    }

    /// The feature of a token from the target's streams.
    fn fuse(&self, taps: &[f32]) -> Row {
        let config = self.config();
        if config.feature == Feature::Final {
            let mut x = Matrix::new(taps.len(), taps.to_vec());
            self.target.final_norm(&mut x);
            return x.row(0).iter().map(|x| f64::from(*x)).collect();
        }
        let mut x: Row = taps.iter().map(|x| f64::from(*x)).collect();
        if config.norm_before_fc {
            x = self.norm("input_norm", &x);
        }
        if config.fc_norm {
            let parts = x.chunks_exact(config.target_hidden).enumerate();
            x = parts
                .flat_map(|(i, part)| self.norm(&format!("fc_norm.{i}"), part))
                .collect();
        }
        if config.fc { self.linear("fc", &x) } else { x }
    }

    fn embed(&self, token: TokenId) -> Row {
        let width = self.config().hidden;
        if let Some(own) = self.tensor("embed_tokens.weight") {
            return own[token as usize * width..][..width].to_vec();
        }
        let row = self.target.embed(&[token]);
        row.row(0).iter().map(|x| f64::from(*x)).collect()
    }

    fn head(&self, output: &[f64]) -> Row {
        let x = if self.config().norm_before_head {
            self.norm("norm", output)
        } else {
            output.to_vec()
        };
        if self.made.tensors.contains_key("lm_head.weight") {
            return self.linear("lm_head", &x);
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the target computes in f32"
        )]
        let x: Vec<f32> = x.iter().map(|x| *x as f32).collect();
        let logits = self.target.head(&Matrix::new(x.len(), x));
        logits.row(0).iter().map(|x| f64::from(*x)).collect()
    }

    /// The output of row `i`.
    fn row(&self, token: TokenId, h: &Row, i: usize, caches: &mut [Vec<(Row, Row)>]) -> Row {
        let config = self.config();
        let embedded = self.embed(token);
        let (mut x, mut input) = if config.version == Version::Eagle1 {
            let pair = [self.optional("embed_norm", embedded), h.clone()].concat();
            let x = self.linear("fc", &pair);
            let input = self.optional("layers.0.input_layernorm", x.clone());
            (x, input)
        } else {
            let normed = self.norm("layers.0.hidden_norm", h);
            let input = [
                self.norm("layers.0.input_layernorm", &embedded),
                normed.clone(),
            ]
            .concat();
            let x = if config.norm_before_residual {
                normed
            } else {
                h.clone()
            };
            (x, input)
        };
        for (layer, cache) in caches.iter_mut().enumerate() {
            let name = |part: &str| format!("layers.{layer}.{part}");
            if layer > 0 {
                input = self.norm(&name("input_layernorm"), &x);
            }
            x = add(&x, &self.attention(layer, &input, i, cache));
            let y = self.norm(&name("post_attention_layernorm"), &x);
            let gate = self.linear(&name("mlp.gate_proj"), &y);
            let up = self.linear(&name("mlp.up_proj"), &y);
            let mid: Row = gate
                .iter()
                .zip(up)
                .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
                .collect();
            x = add(&x, &self.linear(&name("mlp.down_proj"), &mid));
        }
        x
    }

    fn attention(&self, layer: usize, x: &[f64], i: usize, cache: &mut Vec<(Row, Row)>) -> Row {
        let config = self.config();
        let name = |part: &str| format!("layers.{layer}.self_attn.{part}");
        let width = config.head_dim;
        let heads = |part: &str, norm: &str| -> Row {
            let row = self.linear(&name(part), x);
            let heads = row.chunks_exact(width);
            heads
                .flat_map(|head| self.turned(&self.optional(&name(norm), head.to_vec()), i))
                .collect()
        };
        let q = heads("q_proj", "q_norm");
        cache.push((heads("k_proj", "k_norm"), self.linear(&name("v_proj"), x)));
        let from =
            config.sliding_window[layer].map_or(0, |window| cache.len().saturating_sub(window));
        let group = config.heads / config.kv_heads;
        let mut out = Row::new();
        for (head, q) in q.chunks_exact(width).enumerate() {
            let at = head / group * width;
            let scores = cache[from..].iter().map(|(k, _)| {
                let dot: f64 = q.iter().zip(&k[at..at + width]).map(|(q, k)| q * k).sum();
                (dot / count(width).sqrt()).exp()
            });
            let scores: Row = scores.collect();
            let total: f64 = scores.iter().sum();
            for j in 0..width {
                let values = cache[from..].iter().zip(&scores);
                out.push(values.map(|((_, v), s)| v[at + j] * s).sum::<f64>() / total);
            }
        }
        self.linear(&name("o_proj"), &out)
    }

    fn turned(&self, head: &[f64], position: usize) -> Row {
        let config = self.config();
        let half = head.len() / 2;
        let frequencies = config.rope.frequencies(config.head_dim);
        let mut out = head.to_vec();
        for i in 0..half {
            let (sin, cos) = (count(position) * f64::from(frequencies[i])).sin_cos();
            out[i] = head[i] * cos - head[i + half] * sin;
            out[i + half] = head[i + half] * cos + head[i] * sin;
        }
        out
    }
}

fn add(a: &[f64], b: &[f64]) -> Row {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn count(n: usize) -> f64 {
    f64::from(u32::try_from(n).expect("small"))
}
