//! The keys of the rotary embedding, in all the places that they have had.

use serde_json::{Map, Value};

use super::{
    super::{RopeConfig, RopeScaling},
    Fields, KEYS, Only, as_number, as_size,
};
use crate::model::load::{Problem, json};

/// Rotary types of targets.
pub(super) const OF_TARGETS: [&str; 3] = ["default", "linear", "llama3"];
/// Rotary types of heads.
pub(crate) const OF_HEADS: [&str; 4] = ["default", "linear", "llama3", "yarn"];

const ORIGINAL: &str = "original_max_position_embeddings";

/// One object that says how frequencies are scaled, and what it is called.
struct Section<'a> {
    name: &'a str,
    values: &'a Map<String, Value>,
}

impl Section<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    fn optional(&self, key: &str) -> Result<Option<f64>, Problem> {
        let read = |value| as_number(&self.key(key), value);
        self.get(key).map(read).transpose()
    }

    fn number(&self, key: &str) -> Result<f64, Problem> {
        let missing = || Problem::missing(&self.key(key), "a number, for this rope type");
        self.optional(key)?.ok_or_else(missing)
    }

    fn original(&self) -> Result<usize, Problem> {
        let key = self.key(ORIGINAL);
        match self.get(ORIGINAL) {
            Some(value) => as_size(&key, value),
            None => Err(Problem::missing(&key, "a positive integer")),
        }
    }

    /// Refuses `key` with any value but what it means when it is left out.
    fn only(&self, key: &str, only: Only) -> Result<(), Problem> {
        match self.get(key) {
            Some(value) if !only.admits(value) => {
                let accepted = only.accepted();
                Err(Problem::key(self.key(key), json::brief(value), accepted))
            }
            _ => Ok(()),
        }
    }

    /// Its type, `default` if it names none.
    fn kind(&self, accepted: &str) -> Result<&str, Problem> {
        let kind = |key: &str| match self.get(key) {
            None => Ok(None),
            Some(Value::String(kind)) => Ok(Some(kind.as_str())),
            Some(other) => Err(Problem::key(self.key(key), json::brief(other), accepted)),
        };
        match (kind("rope_type")?, kind("type")?) {
            (Some(one), Some(other)) if one != other => Err(Problem::Contradiction {
                one: format!("{} is {one:?}", self.key("rope_type")),
                other: format!("{} is {other:?}", self.key("type")),
                accepted: "the same type, or one of the two".to_owned(),
            }),
            (Some(kind), _) | (None, Some(kind)) => Ok(kind),
            (None, None) if self.values.contains_key("factor") => {
                Err(Problem::missing(&self.key("rope_type"), accepted))
            }
            (None, None) => Ok("default"),
        }
    }

    fn yarn(&self) -> Result<RopeScaling, Problem> {
        self.only("truncate", Only::True)?;
        let factor = self.number("factor")?;
        // Magnitudes by the paper's rule, with a weight where a file gives one.
        let magnitude = |weight: f64| match factor {
            factor if factor > 1.0 => 0.1 * weight * factor.ln() + 1.0,
            _ => 1.0,
        };
        let weights = (self.optional("mscale")?, self.optional("mscale_all_dim")?);
        let attention = match (self.optional("attention_factor")?, weights) {
            (Some(attention), _) => attention,
            (None, (Some(one), Some(all))) if one != 0.0 && all != 0.0 => {
                magnitude(one) / magnitude(all)
            }
            (None, _) => magnitude(1.0),
        };
        Ok(RopeScaling::Yarn {
            factor,
            beta_fast: self.optional("beta_fast")?.unwrap_or(32.0),
            beta_slow: self.optional("beta_slow")?.unwrap_or(1.0),
            original_max_position: self.original()?,
            attention,
        })
    }
}

impl Fields<'_> {
    /// Theta and scaling: at top level with `rope_scaling`, or together in `rope_parameters`, there
    /// perhaps by type of layer. `accepted` are the scalings that may be asked for.
    pub(crate) fn rope(&mut self, accepted: &[&str]) -> Result<RopeConfig, Problem> {
        let top = self.number(KEYS.theta)?;
        let old = self.section("rope_scaling")?;
        let new = self.section("rope_parameters")?;
        let old = old.map(|values| ("rope_scaling".to_owned(), values));
        let new = new.map(|values| self.of_all_layers(values)).transpose()?;
        let mut theta = top.map(|theta| (KEYS.theta.to_owned(), theta));
        let mut scaling = None::<(String, RopeScaling)>;
        for (name, values) in [old, new].into_iter().flatten() {
            let section = Section {
                name: &name,
                values: &values,
            };
            let key = section.key(KEYS.theta);
            match (&theta, section.optional(KEYS.theta)?) {
                (Some((other, value)), Some(nested)) if *value != nested => {
                    return Err(Problem::Contradiction {
                        one: format!("{other} is {value}"),
                        other: format!("{key} is {nested}"),
                        accepted: "the same number, or one of the two".to_owned(),
                    });
                }
                (None, Some(nested)) => theta = Some((key, nested)),
                _ => {}
            }
            let found = self.scaling(&section, accepted)?;
            match &scaling {
                Some((other, value)) if *value != found => {
                    return Err(Problem::Contradiction {
                        one: format!("{other} asks for {}", value.name()),
                        other: format!("{name} for {}, or with other numbers", found.name()),
                        accepted: "the same rotary scaling, or one of the two".to_owned(),
                    });
                }
                _ => scaling = Some((name, found)),
            }
        }
        Ok(RopeConfig {
            theta: match theta {
                Some((_, theta)) => theta,
                None => self.default(KEYS.theta, 10_000.0),
            },
            scaling: scaling.map_or(RopeScaling::None, |(_, scaling)| scaling),
        })
    }

    /// The section `rope_parameters`, or what it says of the types of layers that there are, if that is
    /// the same of all of them.
    fn of_all_layers(
        &self,
        values: Map<String, Value>,
    ) -> Result<(String, Map<String, Value>), Problem> {
        const NAME: &str = "rope_parameters";
        if !values.values().any(Value::is_object) {
            return Ok((NAME.to_owned(), values));
        }
        let types = self.get("layer_types").and_then(Value::as_array);
        let types = types.into_iter().flatten().filter_map(Value::as_str);
        let mut types: Vec<&str> = types.collect();
        types.dedup();
        if types.is_empty() {
            types.push("full_attention");
        }
        let of = |kind: &str| {
            let key = format!("{NAME}.{kind}");
            match values.get(kind) {
                Some(Value::Object(section)) => Ok((key, section.clone())),
                Some(other) => Err(Problem::key(key, json::brief(other), "an object")),
                None => Err(Problem::missing(
                    &key,
                    "the rope of the layers of this type",
                )),
            }
        };
        let (first, section) = of(types[0])?;
        for kind in &types[1..] {
            let (key, other) = of(kind)?;
            if other != section {
                return Err(Problem::Contradiction {
                    one: format!("{first} is {}", json::brief(&section.into())),
                    other: format!("{key} is {}", json::brief(&other.into())),
                    accepted: "one rotary embedding for all layers".to_owned(),
                });
            }
        }
        match values.iter().find(|(_, value)| !value.is_object()) {
            Some((key, value)) => Err(Problem::key(
                format!("{NAME}.{key}"),
                json::brief(value),
                "no such key beside those of layer types",
            )),
            None => Ok((first, section)),
        }
    }

    fn scaling(
        &mut self,
        section: &Section<'_>,
        accepted: &[&str],
    ) -> Result<RopeScaling, Problem> {
        let words = quoted(accepted);
        let kind = section.kind(&words)?;
        let mut known = vec!["rope_type", "type", "rope_theta", "partial_rotary_factor"];
        let scaling = match kind {
            "default" => RopeScaling::None,
            "linear" => {
                known.push("factor");
                let factor = section.number("factor")?;
                RopeScaling::Linear { factor }
            }
            "llama3" => {
                known.extend(["factor", "low_freq_factor", "high_freq_factor", ORIGINAL]);
                RopeScaling::Llama3 {
                    factor: section.number("factor")?,
                    low_freq_factor: section.number("low_freq_factor")?,
                    high_freq_factor: section.number("high_freq_factor")?,
                    original_max_position: section.original()?,
                }
            }
            "yarn" if accepted.contains(&kind) => {
                known.extend(["factor", "beta_fast", "beta_slow", ORIGINAL, "truncate"]);
                known.extend(["attention_factor", "mscale", "mscale_all_dim"]);
                section.yarn()?
            }
            other => {
                let key = match section.values.contains_key("rope_type") {
                    true => "rope_type",
                    false => "type",
                };
                let value = format!("{other:?}");
                return Err(Problem::key(section.key(key), value, &words));
            }
        };
        section.only("partial_rotary_factor", Only::One)?;
        for (key, value) in section.values {
            if value.is_object() {
                let accepted = "one rotary embedding for all layers";
                return Err(Problem::key(section.key(key), json::brief(value), accepted));
            }
            if !known.contains(&key.as_str()) {
                let (key, value) = (section.key(key), json::brief(value));
                self.warnings.push(format!(
                    "key {key} ({value}) is unknown for rope type {kind}; it is ignored"
                ));
            }
        }
        Ok(scaling)
    }
}

/// `"a", "b" or "c"`.
fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}
