//! Heads made in memory: random ones of every option, and two whose drafts are known.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use eyrie::{
    TokenId,
    draft::{
        Pick, Shape,
        eagle::{
            EagleDrafter, Feature, Head, HeadConfig, MapForm, Source, TapsConvention, Version,
            VocabMap,
        },
    },
    error::Result,
    model::{
        LoadOptions, Target,
        config::{RopeConfig, RopeScaling},
        load::{Stored, StoredType},
    },
};

use eyrie_fixtures::safetensors_bytes;
use serde_json::{Value, json};

use crate::support::at;

/// A change of something.
pub(crate) type Change<T> = fn(&mut T);

/// A configuration and its tensors, by name.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) config: HeadConfig,
    pub(crate) tensors: BTreeMap<String, Vec<f32>>,
}

/// E3: three taps, half of the vocabulary, all else as the paper has it.
pub(crate) fn e3() -> HeadConfig {
    let ids = (0..32_u32).map(|i| 2 * i + u32::from(i % 3 == 0));
    HeadConfig {
        version: Version::Eagle3,
        source: Source::SafeAiLab,
        hidden: 32,
        target_hidden: 32,
        layers: 1,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        intermediate: 48,
        vocab: 64,
        draft_vocab: 32,
        eps: 1e-5,
        rope: RopeConfig {
            theta: 10_000.0,
            scaling: RopeScaling::None,
        },
        max_position: 256,
        feature: Feature::Taps(vec![2, 3, 4]),
        taps_convention: Some(TapsConvention::Default),
        fc: true,
        fc_bias: false,
        norm_before_fc: false,
        fc_norm: false,
        embed_norm: false,
        input_norm: true,
        norm_before_residual: false,
        norm_output: false,
        norm_before_head: true,
        attention_bias: false,
        output_bias: false,
        qk_norm: false,
        sliding_window: vec![None],
        own_embedding: false,
        own_head: true,
        vocab_map: VocabMap::Reduced(ids.collect()),
        map_form: MapForm::Offsets,
        warnings: Vec::new(),
    }
}

/// E1: the final feature, and embedding and head of the target.
pub(crate) fn e1() -> HeadConfig {
    HeadConfig {
        version: Version::Eagle1,
        feature: Feature::Final,
        taps_convention: None,
        fc_bias: true,
        input_norm: false,
        norm_before_head: false,
        own_head: false,
        draft_vocab: 64,
        vocab_map: VocabMap::Identity,
        map_form: MapForm::Identity,
        ..e3()
    }
}

/// Numbers of mean 0 and variance 1, the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        let mut sum = 0.0;
        for _ in 0..12 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let bits = u16::try_from(self.0 >> 48).expect("16 bits");
            sum += f32::from(bits) / 65_536.0;
        }
        sum - 6.0
    }
}

/// Random tensors for `config`.
pub(crate) fn random(config: HeadConfig, seed: u64) -> Made {
    let mut numbers = Numbers(seed);
    let tensors = config.tensors().into_iter().map(|(name, shape, _)| {
        let count: usize = shape.iter().product();
        let width = f32::from(u16::try_from(*shape.last().expect("a shape")).expect("small"));
        let (mean, std) = match &shape[..] {
            [_] if name.ends_with("bias") => (0.0, 0.3),
            [_] => (1.0, 0.2),
            _ if name.starts_with("embed") => (0.0, 1.0),
            _ if name.contains("q_proj") || name.contains("k_proj") => (0.0, 3.0 / width.sqrt()),
            _ if name.starts_with("lm_head") => (0.0, 3.0 / width.sqrt()),
            _ => (0.0, 1.5 / width.sqrt()),
        };
        let values = (0..count).map(|_| mean + std * numbers.next());
        (name, values.collect())
    });
    let tensors = tensors.collect();
    Made { config, tensors }
}

impl Made {
    /// The tensor `name`, as f32.
    pub(crate) fn stored(&self, name: &str) -> Stored {
        let shapes = self.config.tensors();
        let shape = shapes.into_iter().find(|tensor| tensor.0 == name);
        let bytes = self.tensors[name].iter().flat_map(|x| x.to_le_bytes());
        Stored {
            name: name.to_owned(),
            dtype: StoredType::F32,
            shape: shape.expect("a name of the head").1,
            bytes: bytes.collect(),
        }
    }

    /// The head over `target`.
    pub(crate) fn try_head(&self, target: &Arc<dyn Target>) -> Result<Head> {
        let mut source = |name: &str| Ok(self.stored(name));
        let options = LoadOptions {
            threads: Some(1),
            ..LoadOptions::default()
        };
        Head::new(
            self.config.clone(),
            &mut source,
            Arc::clone(target),
            &options,
        )
    }

    pub(crate) fn head(&self, target: &Arc<dyn Target>) -> Head {
        self.try_head(target).expect("the head fits")
    }

    /// A drafter with trees of `topk` and room for `slots` rows.
    pub(crate) fn drafter(
        &self,
        target: &Arc<dyn Target>,
        topk: usize,
        slots: usize,
    ) -> EagleDrafter {
        let shape = Shape {
            pick: Pick::Coupled,
            topk,
        };
        EagleDrafter::new(self.head(target), shape, slots)
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Fn(usize, usize) -> f32) {
        let shapes = self.config.tensors();
        let (_, shape, _) = shapes.iter().find(|tensor| tensor.0 == name).expect(name);
        let cols = *shape.last().expect("a shape");
        let rows = shape.iter().product::<usize>() / cols;
        let values = (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
        let values = values.map(|(row, col)| value(row, col)).collect();
        self.tensors.insert(name.to_owned(), values);
    }
}

impl Made {
    /// Writes an EAGLE-3 head of one layer to `dir` as the paper's own code does, with these further keys.
    pub(crate) fn write_dir(&self, dir: &Path, more: &Value) {
        let c = &self.config;
        let mut config = json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": c.hidden,
            "target_hidden_size": c.target_hidden,
            "intermediate_size": c.intermediate,
            "num_attention_heads": c.heads,
            "num_key_value_heads": c.kv_heads,
            "num_hidden_layers": 1,
            "head_dim": c.head_dim,
            "vocab_size": c.vocab,
            "draft_vocab_size": c.draft_vocab,
            "rms_norm_eps": c.eps,
            "rope_theta": c.rope.theta,
            "max_position_embeddings": c.max_position,
        });
        let keys = config.as_object_mut().expect("an object");
        keys.extend(more.as_object().expect("an object").clone());
        let (mut header, mut data) = (json!({}), Vec::new());
        let mut add = |name: &str, dtype: &str, shape: &[usize], bytes: Vec<u8>| {
            let begin = data.len();
            data.extend(bytes);
            let offsets = [begin, data.len()];
            header[name] = json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
        };
        let ids = ids(c);
        let offsets = ids.iter().zip(0..).map(|(id, i)| i64::from(*id) - i);
        let bytes = offsets.flat_map(i64::to_le_bytes).collect();
        add("d2t", "I64", &[c.draft_vocab], bytes);
        let chosen = (0..c.vocab).map(|id| u8::from(ids.contains(&at(id))));
        add("t2d", "BOOL", &[c.vocab], chosen.collect());
        for (name, shape, _) in c.tensors() {
            let bytes = self.tensors[&name].iter().flat_map(|x| x.to_le_bytes());
            add(
                &name.replace("layers.0.", "midlayer."),
                "F32",
                &shape,
                bytes.collect(),
            );
        }
        std::fs::create_dir_all(dir).expect("a folder");
        std::fs::write(dir.join("config.json"), config.to_string()).expect("a file");
        let file = safetensors_bytes(&header.to_string(), &data);
        std::fs::write(dir.join("model.safetensors"), file).expect("a file");
    }
}

/// A head for a table of `vocab` tokens, which is even: after token t it says `sign` times row t of the
/// table, whatever came before.
pub(crate) fn table_head(version: Version, vocab: usize, sign: f32) -> Made {
    let eagle3 = version == Version::Eagle3;
    let base = if eagle3 { e3() } else { e1() };
    let config = HeadConfig {
        hidden: vocab,
        target_hidden: vocab,
        heads: 1,
        kv_heads: 1,
        head_dim: vocab,
        intermediate: 2,
        vocab,
        draft_vocab: vocab,
        eps: 1e-12,
        feature: if eagle3 {
            Feature::Taps(vec![0, 1])
        } else {
            Feature::Final
        },
        fc_bias: false,
        norm_before_residual: eagle3,
        sliding_window: vec![eagle3.then_some(1)],
        own_head: false,
        vocab_map: VocabMap::Identity,
        map_form: MapForm::Identity,
        ..base
    };
    let mut made = random(config, 1);
    let root = f32::from(u16::try_from(vocab).expect("small")).sqrt();
    let is = |same: bool, value: f32| if same { value } else { 0.0 };
    made.set("layers.0.mlp.down_proj.weight", |_, _| 0.0);
    if eagle3 {
        // A row sees its own key alone, so attention hands its embedding through; nothing else counts.
        made.set("layers.0.hidden_norm.weight", |_, _| 0.0);
        made.set("layers.0.input_layernorm.weight", |_, _| 1.0);
        made.set("layers.0.self_attn.v_proj.weight", |r, c| is(r == c, 1.0));
        made.set("layers.0.self_attn.o_proj.weight", |r, c| is(r == c, sign));
        made.set("norm.weight", |_, _| 1.0);
    } else {
        made.set("fc.weight", |r, c| is(r == c, sign * root));
        made.set("layers.0.self_attn.o_proj.weight", |_, _| 0.0);
    }
    made
}

/// A table whose best tokens go round the even ones of 64, and the best of an odd one is the even one
/// below.
pub(crate) fn ring() -> Vec<Vec<f32>> {
    let best = |t: usize| {
        if t % 2 == 1 {
            t - 1
        } else {
            (5 * (t / 2) + 3) % 32 * 2
        }
    };
    let cell = |t: usize, v: usize| {
        let small = f32::from(u8::try_from((t * 31 + v * 17) % 97).expect("small")) / 100.0;
        if best(t) == v { 5.0 } else { small }
    };
    (0..64)
        .map(|t| (0..64).map(|v| cell(t, v)).collect())
        .collect()
}

/// A head of [`ring`], always right, with a vocabulary of the 32 even tokens.
pub(crate) fn ring_head() -> Made {
    let mut made = table_head(Version::Eagle3, 64, 1.0);
    made.config.own_head = true;
    made.config.draft_vocab = 32;
    made.config.vocab_map = VocabMap::Reduced((0..32).map(|row| 2 * row).collect());
    made.config.map_form = MapForm::Offsets;
    let (table, root) = (ring(), 8.0);
    made.set("lm_head.weight", |row, token| table[token][2 * row] / root);
    made
}

/// Keys that [`Made::write_dir`] needs beside for a [`ring_head`].
pub(crate) fn ring_keys() -> Value {
    json!({
        "eagle_aux_hidden_state_layer_ids": [0, 1],
        "norm_before_residual": true,
        "layer_types": ["sliding_attention"],
        "sliding_window": 1,
    })
}

/// [`ring_head`] with its vocabulary map rolled by a row, and with random logits.
pub(crate) fn ring_heads_gone_wrong() -> [(&'static str, Made); 2] {
    let mut rolled = ring_head();
    rolled.config.vocab_map = VocabMap::Reduced((0..32).map(|row| 2 * ((row + 1) % 32)).collect());
    let mut random_head = ring_head();
    let other = random(random_head.config.clone(), 77);
    random_head.tensors.insert(
        "lm_head.weight".to_owned(),
        other.tensors["lm_head.weight"].clone(),
    );
    [("rolled", rolled), ("random", random_head)]
}

/// The target tokens of the rows of a head's logits.
pub(crate) fn ids(config: &HeadConfig) -> Vec<TokenId> {
    match &config.vocab_map {
        VocabMap::Identity => (0..config.draft_vocab).map(at).collect(),
        VocabMap::Reduced(ids) => ids.to_vec(),
    }
}
