//! A reader that knows how much is left, so that no length is believed.

use std::io::{BufReader, Read};

use super::{super::error::Problem, Value};

/// Arrays within arrays; the files we read have none.
const MAX_NESTING: u32 = 3;
/// Elements of all arrays of a header together; the largest vocabularies have a few 100,000.
const MAX_ELEMENTS: u64 = 1 << 23;
const MAX_STRING: u64 = 1 << 26;

/// A position in a header.
pub(super) struct Cursor<'r, R> {
    file: BufReader<&'r mut R>,
    at: u64,
    len: u64,
    elements: u64,
}

impl<'r, R: Read> Cursor<'r, R> {
    pub(super) fn new(file: &'r mut R, len: u64) -> Self {
        Self {
            file: BufReader::with_capacity(1 << 16, file),
            at: 0,
            len,
            elements: 0,
        }
    }

    /// Bytes read so far.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    fn claim(&mut self, need: u64, what: impl FnOnce() -> String) -> Result<(), Problem> {
        let left = self.len - self.at;
        if need > left {
            return Err(Problem::Truncated {
                what: what(),
                at: self.at,
                need,
                left,
            });
        }
        self.at += need;
        Ok(())
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<(), Problem> {
        self.file
            .read_exact(into)
            .map_err(|source| Problem::io("read the header", source))
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Problem> {
        self.claim(N as u64, || what.to_owned())?;
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, Problem> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, Problem> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Checks a count of things of at least `least` bytes each against `limit` and what is left.
    pub(super) fn bound(
        &self,
        what: &str,
        count: u64,
        limit: u64,
        least: u64,
    ) -> Result<(), Problem> {
        let limit = limit.min((self.len - self.at) / least);
        if count > limit {
            return Err(Problem::TooLarge {
                what: what.to_owned(),
                value: count,
                limit,
            });
        }
        Ok(())
    }

    pub(super) fn string(
        &mut self,
        limit: u64,
        what: impl Fn() -> String,
    ) -> Result<String, Problem> {
        self.claim(8, &what)?;
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        let len = u64::from_le_bytes(bytes);
        let fits = usize::try_from(len).ok().filter(|_| len <= limit);
        let Some(size) = fits else {
            return Err(Problem::TooLarge {
                what: format!("the length of {}", what()),
                value: len,
                limit,
            });
        };
        self.claim(len, &what)?;
        let mut bytes = vec![0; size];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|error| Problem::Utf8 {
            what: what(),
            at: error.utf8_error().valid_up_to(),
        })
    }

    /// The typed value of `key`.
    pub(super) fn value(&mut self, key: &str) -> Result<Value, Problem> {
        let kind = self.u32(key)?;
        self.payload(key, kind, 0)
    }

    fn payload(&mut self, key: &str, kind: u32, nesting: u32) -> Result<Value, Problem> {
        Ok(match kind {
            0 => Value::U8(u8::from_le_bytes(self.array(key)?)),
            1 => Value::I8(i8::from_le_bytes(self.array(key)?)),
            2 => Value::U16(u16::from_le_bytes(self.array(key)?)),
            3 => Value::I16(i16::from_le_bytes(self.array(key)?)),
            4 => Value::U32(self.u32(key)?),
            5 => Value::I32(i32::from_le_bytes(self.array(key)?)),
            6 => Value::F32(f32::from_le_bytes(self.array(key)?)),
            7 => match self.array(key)? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [byte] => return Err(Problem::key(key, byte, "0 or 1 (a boolean)")),
            },
            8 => Value::String(self.string(MAX_STRING, || key.to_owned())?),
            9 => self.list(key, nesting)?,
            10 => Value::U64(self.u64(key)?),
            11 => Value::I64(i64::from_le_bytes(self.array(key)?)),
            12 => Value::F64(f64::from_le_bytes(self.array(key)?)),
            found => {
                return Err(Problem::ValueType {
                    key: key.to_owned(),
                    found,
                });
            }
        })
    }

    fn list(&mut self, key: &str, nesting: u32) -> Result<Value, Problem> {
        if nesting == MAX_NESTING {
            return Err(Problem::TooLarge {
                what: format!("the nesting of arrays in {key}"),
                value: (nesting + 1).into(),
                limit: MAX_NESTING.into(),
            });
        }
        let kind = self.u32(key)?;
        let count = self.u64(key)?;
        let least = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            9 => 12,
            _ => 8,
        };
        let left = MAX_ELEMENTS - self.elements;
        self.bound(
            &format!("the number of elements of {key}"),
            count,
            left,
            least,
        )?;
        self.elements += count;
        (0..count)
            .map(|_| self.payload(key, kind, nesting + 1))
            .collect::<Result<_, _>>()
            .map(Value::Array)
    }
}
