//! Pre-tokenizers that `tokenizer.ggml.pre` names, as the steps of a `tokenizer.json`.

use serde_json::{Value, json};

use super::TextError;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Name in the file, rules.
const TABLE: &[(&str, Pre)] = &[
    ("smollm", Pre::of(&[r"\p{N}", GPT2])),
    ("gpt-2", Pre::of(&[GPT2])),
    ("phi-2", Pre::of(&[GPT2])),
    // The rules of llama.cpp for a tokenizer that its converter did not know.
    (
        "default",
        Pre::of(&[r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"]),
    ),
    ("llama-bpe", Pre::llama3()),
    ("llama3", Pre::llama3()),
    ("llama-v3", Pre::llama3()),
    ("qwen2", Pre::qwen2()),
    ("deepseek-r1-qwen", Pre::qwen2()),
];

/// The rules behind one name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pre {
    /// Each splits every piece of the one before; matches and what lies between become pieces.
    splits: &'static [&'static str],
    /// Unicode composition before splitting.
    nfc: bool,
    /// A piece that is a token stays whole, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// Whether a prompt begins with BOS when the file does not say.
    pub(super) add_bos: bool,
}

impl Pre {
    const fn of(splits: &'static [&'static str]) -> Self {
        Self {
            splits,
            nfc: false,
            ignore_merges: false,
            add_bos: false,
        }
    }

    const fn llama3() -> Self {
        Self {
            ignore_merges: true,
            add_bos: true,
            ..Self::of(&[LLAMA3])
        }
    }

    const fn qwen2() -> Self {
        Self {
            nfc: true,
            ..Self::of(&[QWEN2])
        }
    }

    pub(super) fn named(name: &str) -> Result<Self, TextError> {
        let found = TABLE.iter().find(|(known, _)| *known == name);
        found.map(|(_, pre)| *pre).ok_or_else(|| TextError::Pre {
            found: name.to_owned(),
            accepted: TABLE
                .iter()
                .map(|(known, _)| *known)
                .collect::<Vec<_>>()
                .join(", "),
        })
    }

    /// The `normalizer` of a `tokenizer.json`.
    pub(super) fn normalizer(self) -> Value {
        if self.nfc {
            json!({"type": "NFC"})
        } else {
            Value::Null
        }
    }

    /// The `pre_tokenizer` of a `tokenizer.json`.
    pub(super) fn pre_tokenizer(self) -> Value {
        let mut steps: Vec<Value> = self
            .splits
            .iter()
            .map(|regex| {
                json!({
                    "type": "Split",
                    "pattern": {"Regex": regex},
                    "behavior": "Isolated",
                    "invert": false,
                })
            })
            .collect();
        steps.push(json!({
            "type": "ByteLevel",
            "add_prefix_space": false,
            "trim_offsets": true,
            "use_regex": false,
        }));
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = Pre::named("viking").unwrap_err().to_string();
        assert!(error.contains("tokenizer.ggml.pre \"viking\""), "{error}");
        assert!(error.contains("smollm, gpt-2"), "{error}");
        assert!(error.contains("llama-bpe"), "{error}");
        assert!(Pre::named("").is_err());
    }

    #[test]
    fn every_table_entry_is_found_by_its_name() {
        for (name, pre) in TABLE {
            assert_eq!(Pre::named(name).unwrap().splits, pre.splits);
        }
    }
}
