//! End-of-sequence ids: generation_config.json, else config.json, else GGUF metadata. In each,
//! `null` means none; a file without the key leaves the question to the next.

use serde_json::{Map, Value};

use super::{error::Problem, json};
use crate::TokenId;

const KEY: &str = "eos_token_id";

/// The ids that a JSON configuration names; `None` if it is silent.
pub(in crate::model) fn eos_ids(
    map: &Map<String, Value>,
    vocab: usize,
) -> Result<Option<Vec<TokenId>>, Problem> {
    let one = |value: &Value| match value.as_u64() {
        Some(id) => eos_id(KEY, id, vocab),
        None => Err(Problem::key(
            KEY,
            json::brief(value),
            "null, a token id, or a list of token ids",
        )),
    };
    match map.get(KEY) {
        None => Ok(None),
        Some(Value::Null) => Ok(Some(Vec::new())),
        Some(Value::Array(ids)) => ids.iter().map(one).collect::<Result<_, _>>().map(Some),
        Some(id) => one(id).map(|id| Some(vec![id])),
    }
}

/// `id`, if the vocabulary has it.
pub(in crate::model) fn eos_id(key: &str, id: u64, vocab: usize) -> Result<TokenId, Problem> {
    TokenId::try_from(id)
        .ok()
        .filter(|id| (*id as usize) < vocab)
        .ok_or_else(|| Problem::key(key, id, &format!("token ids below {vocab}")))
}
