//! JSON in which no key may be given twice.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::error::Problem;

/// Parses `text`; a key given twice in one object is an error, where `serde_json` keeps the last.
///
/// # Errors
/// [`Problem::Json`] with line and column.
pub(in crate::model) fn parse(what: &'static str, text: &str) -> Result<Value, Problem> {
    let mut json = serde_json::Deserializer::from_str(text);
    Strict
        .deserialize(&mut json)
        .and_then(|value| json.end().map(|()| value))
        .map_err(|source| Problem::Json { what, source })
}

/// Parses `text`, which must be an object.
pub(in crate::model) fn object(
    what: &'static str,
    text: &str,
) -> Result<Map<String, Value>, Problem> {
    match parse(what, text)? {
        Value::Object(map) => Ok(map),
        other => Err(Problem::key(what, brief(&other), "an object")),
    }
}

/// `value` as JSON, cut to a length that fits a message.
pub(in crate::model) fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

#[derive(Clone, Copy)]
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self)?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("key {key:?} is given twice")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_given_twice_is_named_and_the_rest_is_serde_json() {
        let text = r#"{"a": [1, -2, 3.5, null, true, "x"], "b": {"c": 18446744073709551615}}"#;
        assert_eq!(
            parse("x", text).unwrap(),
            serde_json::from_str::<Value>(text).unwrap()
        );
        let twice = parse("x", r#"{"b": {"c": 1, "c": 1}}"#).unwrap_err();
        assert!(
            twice.to_string().contains("\"c\" is given twice"),
            "{twice}"
        );
        assert!(parse("x", "{} {}").is_err());
        assert!(parse("x", &"[".repeat(100_000)).is_err());
    }
}
