//! The expected law.

use std::{collections::HashMap, fmt, io::BufReader, path::Path};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

use super::{Failure, lines};
use crate::pool::check_law;

/// A law over sequences.
#[derive(Debug)]
pub(super) struct Law {
    pub(super) vocab: u64,
    pub(super) length: usize,
    /// Probability by cell; one more cell of probability 0 stands for all that is not named.
    pub(super) p: Vec<f64>,
    pub(super) cells: HashMap<Vec<u32>, usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    vocab: u64,
    length: usize,
    p: Probabilities,
}

/// What a law file may hold: an object, or a list for single tokens.
#[derive(Debug)]
enum Either {
    List(Vec<f64>),
    Object(File),
}

impl<'de> Deserialize<'de> for Either {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = Either;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with vocab, length and p, or a list of probabilities")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Either, A::Error> {
                Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(seq))
                    .map(Either::List)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Either, A::Error> {
                File::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    .map(Either::Object)
            }
        }
        from.deserialize_any(Seen)
    }
}

/// The `p` of a law: as written, so that what is named twice is seen.
#[derive(Debug)]
enum Probabilities {
    List(Vec<f64>),
    Pairs(Vec<(String, f64)>),
}

impl<'de> Deserialize<'de> for Probabilities {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = Probabilities;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object from token ids like \"0,1\" to probabilities, or a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Probabilities, A::Error> {
                Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(seq))
                    .map(Probabilities::List)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Probabilities, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Probabilities::Pairs(pairs))
            }
        }
        from.deserialize_any(Seen)
    }
}

/// Reads a law.
pub(super) fn read(path: &Path) -> Result<Law, Failure> {
    let bad = |problem: String| lines::of(path, problem);
    let either = serde_json::from_reader(BufReader::new(lines::open(path)?))
        .map_err(|e| lines::at(path, e.line(), lines::of_json(&e)))?;
    let file = match either {
        Either::Object(file) => file,
        Either::List(p) => File {
            vocab: p.len() as u64,
            length: 1,
            p: Probabilities::List(p),
        },
    };
    if !(1..=1 << 32).contains(&file.vocab) {
        return Err(bad(format!("vocab {}: must lie in 1..=2^32", file.vocab)));
    }
    if file.length == 0 {
        return Err(bad("length 0: must be at least 1".into()));
    }
    let pairs = match file.p {
        Probabilities::Pairs(pairs) => pairs,
        Probabilities::List(_) if file.length != 1 => {
            let length = file.length;
            return Err(bad(format!(
                "p is a list and length {length}: a list needs length 1"
            )));
        }
        Probabilities::List(list) if list.len() as u64 != file.vocab => {
            let (len, vocab) = (list.len(), file.vocab);
            return Err(bad(format!("p has {len} numbers: must be vocab, {vocab}")));
        }
        Probabilities::List(list) => {
            let cell = |(i, p): (usize, f64)| (i.to_string(), p);
            list.into_iter().enumerate().map(cell).collect()
        }
    };
    let (mut p, mut cells) = (Vec::new(), HashMap::new());
    for (key, probability) in pairs {
        let tokens = tokens(&key, file.vocab, file.length).map_err(&bad)?;
        if cells.insert(tokens, p.len()).is_some() {
            return Err(bad(format!("p {key:?} stands twice: each cell once")));
        }
        if !(0.0..=1.0).contains(&probability) {
            return Err(bad(format!("p {key:?} = {probability}: must lie in 0..=1")));
        }
        p.push(probability);
    }
    check_law(&p).map_err(|e| bad(e.to_string()))?;
    p.push(0.0);
    Ok(Law {
        vocab: file.vocab,
        length: file.length,
        p,
        cells,
    })
}

/// The token ids of a cell's name; none in "".
fn tokens(key: &str, vocab: u64, length: usize) -> Result<Vec<u32>, String> {
    let parts = key.split(',').filter(|_| !key.is_empty());
    let id = |part: &str| match part.trim().parse::<u32>() {
        Ok(id) if u64::from(id) < vocab => Ok(id),
        _ => Err(format!(
            "p {key:?}: {part:?} must be a token id below vocab, {vocab}"
        )),
    };
    let tokens: Vec<u32> = parts.map(id).collect::<Result<_, _>>()?;
    if tokens.len() > length {
        let len = tokens.len();
        return Err(format!(
            "p {key:?} has {len} tokens: must be at most length, {length}"
        ));
    }
    Ok(tokens)
}
