//! JSON in which a key given twice is an error instead of a silent choice.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads one JSON value; nothing but white space may follow it.
pub(crate) fn parse(text: &str) -> Result<Value, serde_json::Error> {
    let mut source = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut source)?;
    source.end()?;
    Ok(value)
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
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

    fn visit_bool<E>(self, x: bool) -> Result<Value, E> {
        Ok(Value::Bool(x))
    }

    fn visit_u64<E>(self, x: u64) -> Result<Value, E> {
        Ok(Value::Number(x.into()))
    }

    fn visit_i64<E>(self, x: i64) -> Result<Value, E> {
        Ok(Value::Number(x.into()))
    }

    fn visit_f64<E: Error>(self, x: f64) -> Result<Value, E> {
        let number = Number::from_f64(x);
        number
            .map(Value::Number)
            .ok_or_else(|| E::custom(format!("{x} is no JSON number")))
    }

    fn visit_str<E>(self, x: &str) -> Result<Value, E> {
        Ok(Value::String(x.to_owned()))
    }

    fn visit_string<E>(self, x: String) -> Result<Value, E> {
        Ok(Value::String(x))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element_seed(Self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Self)?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("key {key:?} is given twice")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// The value as an error shows it: JSON, cut after 80 characters.
pub(crate) fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_serde_json_where_keys_are_unique() {
        for text in [
            "null",
            " [1, -2, 3.5e2, true, \"a\\u00e9\", {}] ",
            r#"{"b":{"x":[{"y":null}]},"a":18446744073709551615}"#,
        ] {
            let plain: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text).unwrap(), plain);
        }
    }

    #[test]
    fn refuses_what_is_ambiguous_or_no_json() {
        for (text, part) in [
            (r#"{"a":1,"a":1}"#, "key \"a\" is given twice"),
            (r#"{"a":{"7":1,"7":2}}"#, "key \"7\" is given twice"),
            ("1 2", "trailing"),
            ("1e999", "out of range"),
            ("NaN", "expected"),
            ("", "EOF"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(&deep).unwrap_err().to_string().contains("recursion"));
    }

    #[test]
    fn shows_at_most_eighty_characters() {
        let long = Value::String("é".repeat(100));
        assert_eq!(brief(&long).chars().count(), 81);
        assert_eq!(brief(&Value::from(1.5)), "1.5");
    }
}
