//! A stack machine for the part of the pickle language that a table of tensors is written in.
//!
//! It builds values and calls nothing. What it would have to call is one of the four names that
//! `Global` knows, and for these it puts down what they would return. Objects lie in
//! one list and refer to each other by index, so that no nesting is deep, every
//! byte of the pickle makes at most one small object.

use std::collections::{BTreeMap, HashMap};

use super::object::{GLOBALS, Global, Object, Ref, Storage, View};
use crate::model::load::Problem;

/// More than a table of tensors needs.
const MAX_OBJECTS: usize = 1 << 20;
/// More dimensions than a tensor has; a shape is copied for each tensor.
const MAX_RANK: usize = 64;

/// The tensors of the table that `pickle` is.
pub(super) fn run(pickle: &[u8]) -> Result<BTreeMap<String, View>, Problem> {
    let mut machine = Machine {
        pickle,
        at: 0,
        objects: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    let top = machine.run()?;
    machine.table(top)
}

struct Machine<'p> {
    pickle: &'p [u8],
    at: usize,
    objects: Vec<Object>,
    stack: Vec<Ref>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u32, Ref>,
}

impl<'p> Machine<'p> {
    fn refuse(&self, what: impl Into<String>, accepted: &str) -> Problem {
        let key = format!("the pickle at byte {}", self.at);
        let (value, accepted) = (what.into(), accepted.to_owned());
        Problem::Key {
            key,
            value,
            accepted,
        }
    }

    fn take(&mut self, count: usize) -> Result<&'p [u8], Problem> {
        let rest = &self.pickle[self.at..];
        let Some(bytes) = rest.get(..count) else {
            return Err(Problem::Truncated {
                what: "the pickle".to_owned(),
                at: self.at as u64,
                need: count as u64,
                left: rest.len() as u64,
            });
        };
        self.at += count;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().unwrap_or([0; N]))
    }

    fn byte(&mut self) -> Result<u8, Problem> {
        self.array().map(|[byte]| byte)
    }

    fn size(&mut self) -> Result<usize, Problem> {
        let size = u32::from_le_bytes(self.array()?);
        Ok(usize::try_from(size).unwrap_or(usize::MAX))
    }

    fn text(&mut self, count: usize) -> Result<String, Problem> {
        let bytes = self.take(count)?;
        let text = std::str::from_utf8(bytes).map_err(|error| Problem::Utf8 {
            what: "a string of the pickle".to_owned(),
            at: error.valid_up_to(),
        })?;
        Ok(text.to_owned())
    }

    fn line(&mut self) -> Result<&'p str, Problem> {
        let rest = &self.pickle[self.at..];
        let end = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(rest.len());
        let line = self.take(end)?;
        self.take(1)?;
        std::str::from_utf8(line).map_err(|_| self.refuse("a name that is not UTF-8", GLOBALS))
    }

    fn push(&mut self, object: Object) -> Result<(), Problem> {
        if self.objects.len() == MAX_OBJECTS {
            return Err(Problem::TooLarge {
                what: "the number of objects of the pickle".to_owned(),
                value: MAX_OBJECTS as u64 + 1,
                limit: MAX_OBJECTS as u64,
            });
        }
        self.stack.push(self.objects.len());
        self.objects.push(object);
        Ok(())
    }

    /// The height below which nothing may be taken: that of the last mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Ref, Problem> {
        if self.stack.len() <= self.floor() {
            return Err(self.refuse(
                "an instruction with nothing to work on",
                "a pickle as torch writes it",
            ));
        }
        Ok(self.stack.pop().unwrap_or_default())
    }

    fn top(&self) -> Result<Ref, Problem> {
        match self.stack[self.floor()..].last() {
            Some(top) => Ok(*top),
            None => Err(self.refuse(
                "an instruction with nothing to work on",
                "a pickle as torch writes it",
            )),
        }
    }

    /// Everything above the last mark, which goes.
    fn above(&mut self) -> Result<Vec<Ref>, Problem> {
        match self.marks.pop() {
            Some(mark) => Ok(self.stack.split_off(mark)),
            None => Err(self.refuse("an end without its mark", "a pickle as torch writes it")),
        }
    }

    fn tuple(&mut self, count: usize) -> Result<(), Problem> {
        let mut items = (0..count)
            .map(|_| self.pop())
            .collect::<Result<Vec<_>, _>>()?;
        items.reverse();
        self.push(Object::Tuple(items))
    }

    fn run(&mut self) -> Result<Ref, Problem> {
        loop {
            let begin = self.at;
            match self.byte()? {
                0x80 => match self.byte()? {
                    2 => {}
                    other => return Err(self.refuse(format!("protocol {other}"), "protocol 2")),
                },
                b'.' => return self.pop(),
                b'(' => self.marks.push(self.stack.len()),
                b'N' => self.push(Object::None)?,
                0x88 | 0x89 => self.push(Object::Bool)?,
                b'J' => {
                    let value = i32::from_le_bytes(self.array()?);
                    self.push(Object::Int(value.into()))?;
                }
                b'K' => {
                    let value = self.byte()?;
                    self.push(Object::Int(value.into()))?;
                }
                b'M' => {
                    let value = u16::from_le_bytes(self.array()?);
                    self.push(Object::Int(value.into()))?;
                }
                0x8a => {
                    let value = self.long()?;
                    self.push(Object::Int(value))?;
                }
                b'G' => {
                    self.take(8)?;
                    self.push(Object::Float)?;
                }
                b'X' => {
                    let size = self.size()?;
                    let text = self.text(size)?;
                    self.push(Object::Text(text.into()))?;
                }
                b')' => self.push(Object::Tuple(Vec::new()))?,
                0x85 => self.tuple(1)?,
                0x86 => self.tuple(2)?,
                0x87 => self.tuple(3)?,
                b't' => {
                    let items = self.above()?;
                    self.push(Object::Tuple(items))?;
                }
                b']' => self.push(Object::List)?,
                b'a' => drop(self.pop()?),
                b'e' => drop(self.above()?),
                b'}' => self.push(Object::Dict(Vec::new()))?,
                b's' => {
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.set(&[key, value])?;
                }
                b'u' => {
                    let items = self.above()?;
                    self.set(&items)?;
                }
                b'q' => {
                    let key = self.byte()?;
                    self.keep(key.into())?;
                }
                b'r' => {
                    let key = u32::from_le_bytes(self.array()?);
                    self.keep(key)?;
                }
                b'h' => {
                    let key = self.byte()?;
                    self.recall(key.into())?;
                }
                b'j' => {
                    let key = u32::from_le_bytes(self.array()?);
                    self.recall(key)?;
                }
                b'c' => self.global()?,
                b'Q' => self.storage()?,
                b'R' => self.reduce()?,
                b'b' => self.build()?,
                other => {
                    self.at = begin;
                    let what = format!("opcode 0x{other:02x}");
                    return Err(self.refuse(what, "the opcodes of a table of tensors"));
                }
            }
        }
    }

    fn long(&mut self) -> Result<i64, Problem> {
        let count = usize::from(self.byte()?);
        let bytes = self.take(count)?;
        if count > 8 {
            return Err(self.refuse(format!("an integer of {count} bytes"), "at most 8 bytes"));
        }
        let negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[..count].copy_from_slice(bytes);
        Ok(i64::from_le_bytes(wide))
    }

    fn keep(&mut self, key: u32) -> Result<(), Problem> {
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, key: u32) -> Result<(), Problem> {
        let Some(object) = self.memo.get(&key) else {
            return Err(self.refuse(
                format!("memo {key}, which holds nothing"),
                "a pickle as torch writes it",
            ));
        };
        self.stack.push(*object);
        Ok(())
    }

    fn set(&mut self, items: &[Ref]) -> Result<(), Problem> {
        let top = self.top()?;
        let (pairs, rest) = items.as_chunks::<2>();
        match &mut self.objects[top] {
            Object::Dict(entries) if rest.is_empty() => {
                entries.extend(pairs.iter().map(|[key, value]| (*key, *value)));
                Ok(())
            }
            other => {
                let what = format!("{} that is given entries", other.kind());
                Err(self.refuse(what, "a dictionary, and keys with values"))
            }
        }
    }

    fn global(&mut self) -> Result<(), Problem> {
        let (module, name) = (self.line()?, self.line()?);
        let Some(global) = Global::of(module, name) else {
            let shown: String = format!("{module}.{name}").chars().take(80).collect();
            return Err(self.refuse(format!("the name {shown}"), GLOBALS));
        };
        self.push(Object::Global(global))
    }

    fn items(&self, tuple: Ref) -> Option<&[Ref]> {
        match &self.objects[tuple] {
            Object::Tuple(items) => Some(items),
            _ => None,
        }
    }

    fn natural(&self, at: Ref) -> Option<u64> {
        match &self.objects[at] {
            Object::Int(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    fn naturals(&self, tuple: Ref) -> Option<Vec<u64>> {
        let items = self.items(tuple)?;
        if items.len() > MAX_RANK {
            return None;
        }
        items.iter().map(|at| self.natural(*at)).collect()
    }

    /// `("storage", type, key, location, count)`.
    fn storage(&mut self) -> Result<(), Problem> {
        let id = self.pop()?;
        let object = |at: &Ref| &self.objects[*at];
        let storage = match self.items(id) {
            Some([word, kind, key, _, count]) => {
                match (
                    object(word),
                    object(kind),
                    object(key),
                    self.natural(*count),
                ) {
                    (
                        Object::Text(word),
                        Object::Global(Global::Storage(dtype)),
                        Object::Text(key),
                        Some(count),
                    ) if &**word == "storage" => {
                        let (key, dtype) = (key.clone(), *dtype);
                        Some(Storage { key, dtype, count })
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        match storage {
            Some(storage) => self.push(Object::Storage(storage)),
            None => Err(self.refuse(
                "a persistent id that is no storage",
                "(\"storage\", type, key, location, count)",
            )),
        }
    }

    fn reduce(&mut self) -> Result<(), Problem> {
        let (arguments, callee) = (self.pop()?, self.pop()?);
        let Object::Global(global) = self.objects[callee] else {
            let what = format!("a call of {}", self.objects[callee].kind());
            return Err(self.refuse(what, GLOBALS));
        };
        let made = match (global, self.items(arguments)) {
            (Global::OrderedDict, Some([])) => Some(Object::Dict(Vec::new())),
            (
                Global::RebuildTensor,
                Some(
                    [storage, offset, shape, strides, _, _]
                    | [storage, offset, shape, strides, _, _, _],
                ),
            ) => self.view(*storage, *offset, *shape, *strides),
            (Global::RebuildParameter, Some([tensor, _, _])) => match &self.objects[*tensor] {
                Object::Tensor(view) => Some(Object::Tensor(view.clone())),
                _ => None,
            },
            _ => None,
        };
        match made {
            Some(object) => self.push(object),
            None => {
                let what = format!("{global:?} with arguments that it does not take");
                Err(self.refuse(what, "a storage, a first value, a shape and strides"))
            }
        }
    }

    fn view(&self, storage: Ref, offset: Ref, shape: Ref, strides: Ref) -> Option<Object> {
        let Object::Storage(storage) = &self.objects[storage] else {
            return None;
        };
        let view = View {
            storage: storage.clone(),
            offset: self.natural(offset)?,
            shape: self.naturals(shape)?,
            strides: self.naturals(strides)?,
        };
        (view.shape.len() == view.strides.len()).then_some(Object::Tensor(view))
    }

    /// An ordered dictionary is given its attributes, of which none is a tensor of the table.
    fn build(&mut self) -> Result<(), Problem> {
        let (state, of) = (self.pop()?, self.top()?);
        match (&self.objects[state], &self.objects[of]) {
            (Object::Dict(_), Object::Dict(_)) => Ok(()),
            (_, other) => {
                let what = format!("{} that is given a state", other.kind());
                Err(self.refuse(what, "a dictionary with attributes"))
            }
        }
    }

    fn table(&self, top: Ref) -> Result<BTreeMap<String, View>, Problem> {
        const ACCEPTED: &str = "a dictionary of tensors by name";
        let what = |what: String| Problem::key("the pickle", what, ACCEPTED);
        let Object::Dict(entries) = &self.objects[top] else {
            return Err(what(self.objects[top].kind().to_owned()));
        };
        let mut table = BTreeMap::new();
        for (key, value) in entries {
            let Object::Text(name) = &self.objects[*key] else {
                return Err(what(format!(
                    "a dictionary with {} as a key",
                    self.objects[*key].kind()
                )));
            };
            let Object::Tensor(view) = &self.objects[*value] else {
                let shown: String = name.chars().take(80).collect();
                let kind = self.objects[*value].kind();
                return Err(what(format!("a dictionary with {kind} as entry {shown:?}")));
            };
            if table.insert(name.to_string(), view.clone()).is_some() {
                let places = "in one table".to_owned();
                let tensor = name.to_string();
                return Err(Problem::DuplicateTensor { tensor, places });
            }
        }
        Ok(table)
    }
}
