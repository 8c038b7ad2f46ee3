//! What each format has a place for.

use super::{
    super::{
        config::{Feature, HeadConfig, TapsConvention, Version, VocabMap},
        load::{TargetFacts, usual},
    },
    Conversion, Format,
    error::SaveError,
};
use crate::model::config::RopeScaling;

impl Conversion<'_> {
    /// Refuses what `format` has no place for.
    pub(super) fn check(&self, format: Format) -> Result<(), SaveError> {
        let Some(what) = self.unheld(format) else {
            return Ok(());
        };
        let others: Vec<_> = Format::ALL
            .iter()
            .filter(|other| self.unheld(**other).is_none())
            .map(|other| other.name())
            .collect();
        let accepted = match &others[..] {
            [] => "a head without, as none of the formats holds it".to_owned(),
            others => format!("--to {}", others.join(" or ")),
        };
        Err(SaveError::Unheld {
            format: format.name(),
            what,
            accepted,
        })
    }

    /// Whether the taps are those of a head that names none; without a target, whether it names none.
    pub(super) fn usual_taps(&self) -> bool {
        let config = self.head.config();
        let Feature::Taps(taps) = &config.feature else {
            return false;
        };
        config.taps_convention == Some(TapsConvention::Default)
            || (self.target.layers != TargetFacts::UNKNOWN
                && usual(self.target.layers).is_some_and(|usual| usual[..] == taps[..]))
    }

    /// The first thing of the head that `format` has no place for.
    fn unheld(&self, format: Format) -> Option<String> {
        if let Some(what) = self.head.refitted() {
            return Some(format!("a head made for another vocabulary ({what})"));
        }
        let c = self.head.config();
        let general = [
            (
                c.version == Version::Eagle3 && !c.norm_before_head,
                "an output that no norm precedes (--head-norm-output head)",
            ),
            (
                c.version == Version::Eagle1 && matches!(c.vocab_map, VocabMap::Reduced(_)),
                "EAGLE-1 with a reduced vocabulary",
            ),
            (
                c.version == Version::Eagle3 && c.feature == Feature::Final,
                "use_aux_hidden_state false (the feature is the target's last stream)",
            ),
            (
                c.version == Version::Eagle3 && c.fc_bias,
                "fc.bias in EAGLE-3",
            ),
        ];
        let first = general.iter().find(|(there, _)| *there);
        if let Some((_, what)) = first {
            return Some((*what).to_owned());
        }
        let what = match (format, c.version) {
            (Format::SafeAiLab, Version::Eagle1) => safeailab(c).or_else(|| {
                let own = [
                    (
                        c.own_head,
                        "lm_head.weight in EAGLE-1 (the target's is used)",
                    ),
                    (c.embed_norm, "embed_norm (a norm of the embedding)"),
                    (c.input_norm, "input_layernorm of layer 0 in EAGLE-1"),
                    (c.norm_before_head, "norm before the head in EAGLE-1"),
                ];
                named(&own)
            }),
            (Format::SafeAiLab, Version::Eagle3) => safeailab(c).or_else(|| {
                let own = [
                    (c.layers > 1, "several layers"),
                    (c.norm_before_fc, "norm_before_fc"),
                    (c.fc_norm, "fc_norm"),
                    (c.norm_before_residual, "norm_before_residual"),
                    (c.norm_output, "norm_output"),
                    (c.attention_bias, "attention_bias in EAGLE-3"),
                    (!c.own_head, "a head that borrows the target's lm_head"),
                ];
                named(&own).or_else(|| {
                    let taps = c.feature.taps();
                    (!self.usual_taps()).then(|| {
                        let known = usual(self.target.layers);
                        let known = known.filter(|_| self.target.layers != TargetFacts::UNKNOWN);
                        let usual =
                            known.map_or_else(String::new, |usual| format!(", as {usual:?} are"));
                        format!("taps {taps:?} that are not the default{usual}")
                    })
                })
            }),
            (Format::Speculators, version) => {
                let eagle1 = version == Version::Eagle1;
                let norms = [c.embed_norm, c.input_norm, c.norm_before_head];
                let some = norms.contains(&true) && norms.contains(&false);
                let own = [
                    (
                        c.attention_bias != c.output_bias,
                        "biases of queries, keys and values without one of the output (attention_bias means all four)",
                    ),
                    (eagle1 && c.layers > 1, "several layers in EAGLE-1"),
                    (eagle1 && c.own_head, "lm_head.weight in EAGLE-1"),
                    (eagle1 && c.own_embedding, "embed_tokens.weight in EAGLE-1"),
                    (eagle1 && c.qk_norm, "q_norm and k_norm in EAGLE-1"),
                    (
                        eagle1 && some,
                        "some of EAGLE-1's three norms (layernorms means all)",
                    ),
                    (
                        !eagle1 && !c.own_head,
                        "a head that borrows the target's lm_head",
                    ),
                ];
                named(&own)
                    .or_else(|| divisors(&c.rope.scaling))
                    .or_else(|| windows(c))
            }
            (Format::Gguf, Version::Eagle1) => Some("EAGLE-1".to_owned()),
            (Format::Gguf, Version::Eagle3) => self.gguf(c),
        };
        what.or_else(|| self.types(format))
    }

    fn gguf(&self, c: &HeadConfig) -> Option<String> {
        let own = [
            (c.layers > 1, "several layers"),
            (c.fc_norm, "fc_norm"),
            (c.norm_output, "norm_output"),
            (c.attention_bias, "attention_bias"),
            (c.output_bias, "o_proj.bias"),
            (c.qk_norm, "q_norm and k_norm"),
            (
                c.sliding_window.iter().any(Option::is_some),
                "sliding_window",
            ),
            (
                matches!(c.rope.scaling, RopeScaling::Yarn { .. }),
                "rope_scaling yarn",
            ),
        ];
        let taps = c.feature.taps();
        let unknown = self.target.layers == TargetFacts::UNKNOWN
            && c.taps_convention == Some(TapsConvention::Default);
        let single = |x: f64| f64::from(single(x)) != x;
        let factor = match &c.rope.scaling {
            RopeScaling::Linear { factor } => Some(*factor),
            _ => None,
        };
        let wide = [
            ("rope_theta", Some(c.rope.theta)),
            ("rope_scaling.factor", factor),
        ];
        let wide = wide.iter().find_map(|(key, value)| {
            let value = value.filter(|value| single(*value))?;
            Some(format!("{key} {value}, which is no 32-bit float"))
        });
        named(&own)
            .or_else(|| (taps.len() != 3).then(|| format!("{} taps (three are)", taps.len())))
            .or_else(|| {
                unknown
                    .then(|| "default taps of a target that is not known (give --model)".to_owned())
            })
            .or(wide)
    }

    /// Tensors whose stored type `format` has no place for.
    fn types(&self, format: Format) -> Option<String> {
        if format == Format::Gguf {
            return None;
        }
        let blocks = self.head.types().find(|(_, dtype)| !dtype.is_float());
        blocks.map(|(name, dtype)| format!("{name} as {}", dtype.name()))
    }
}

/// What the paper's code has in neither version.
fn safeailab(c: &HeadConfig) -> Option<String> {
    let own = [
        (c.output_bias, "o_proj.bias"),
        (c.qk_norm, "q_norm and k_norm"),
        (
            c.sliding_window.iter().any(Option::is_some),
            "sliding_window",
        ),
        (
            matches!(c.rope.scaling, RopeScaling::Llama3 { .. }),
            "rope_scaling llama3",
        ),
        (
            matches!(c.rope.scaling, RopeScaling::Yarn { .. }),
            "rope_scaling yarn",
        ),
        (
            c.heads * c.head_dim != c.hidden,
            "head_dim that is not hidden_size / num_attention_heads",
        ),
    ];
    named(&own).or_else(|| divisors(&c.rope.scaling))
}

fn named(all: &[(bool, &str)]) -> Option<String> {
    let first = all.iter().find(|(there, _)| *there);
    first.map(|(_, what)| (*what).to_owned())
}

fn divisors(scaling: &RopeScaling) -> Option<String> {
    matches!(scaling, RopeScaling::Factors(_))
        .then(|| "rope_freqs.weight (divisors of single frequencies)".to_owned())
}

fn windows(c: &HeadConfig) -> Option<String> {
    let mut widths: Vec<_> = c.sliding_window.iter().flatten().collect();
    widths.sort_unstable();
    widths.dedup();
    (widths.len() > 1).then(|| format!("windows of different widths {widths:?}"))
}

/// The nearest 32-bit float.
pub(super) fn single(x: f64) -> f32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what is computed with, and GGUF's floats, are 32 bits wide"
    )]
    let single = x as f32;
    single
}
