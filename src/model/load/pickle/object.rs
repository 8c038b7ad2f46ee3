//! What a pickle of a table of tensors is made of.

use std::rc::Rc;

use crate::model::load::{Problem, StoredType};

/// A handle of an object: its place in the machine's list.
pub(super) type Ref = usize;

/// An object; those within it are handles, so that none is deep.
#[derive(Clone, Debug)]
pub(super) enum Object {
    None,
    Bool,
    Int(i64),
    Float,
    Text(Rc<str>),
    Tuple(Vec<Ref>),
    List,
    Dict(Vec<(Ref, Ref)>),
    Global(Global),
    Storage(Storage),
    Tensor(View),
}

impl Object {
    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool => "a truth value",
            Self::Int(_) => "an integer",
            Self::Float => "a float",
            Self::Text(_) => "a string",
            Self::Tuple(_) => "a tuple",
            Self::List => "a list",
            Self::Dict(_) => "a dictionary",
            Self::Global(_) => "a name",
            Self::Storage(_) => "a storage",
            Self::Tensor(_) => "a tensor",
        }
    }
}

/// The names that a table of tensors refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    Storage(StoredType),
}

/// All of them, for messages.
pub(super) const GLOBALS: &str = "collections.OrderedDict, torch._utils._rebuild_tensor_v2, \
     torch._utils._rebuild_parameter and torch's FloatStorage, HalfStorage, BFloat16Storage, \
     LongStorage, IntStorage, BoolStorage";

impl Global {
    pub(super) fn of(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("collections", "OrderedDict") => Self::OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2") => Self::RebuildTensor,
            ("torch._utils", "_rebuild_parameter") => Self::RebuildParameter,
            ("torch", "FloatStorage") => Self::Storage(StoredType::F32),
            ("torch", "HalfStorage") => Self::Storage(StoredType::F16),
            ("torch", "BFloat16Storage") => Self::Storage(StoredType::BF16),
            ("torch", "LongStorage") => Self::Storage(StoredType::I64),
            ("torch", "IntStorage") => Self::Storage(StoredType::I32),
            ("torch", "BoolStorage") => Self::Storage(StoredType::Bool),
            _ => return None,
        })
    }
}

/// Values that lie in one entry of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    /// Name of the entry, below `data/`.
    pub(super) key: Rc<str>,
    pub(super) dtype: StoredType,
    /// Values that it claims to have.
    pub(super) count: u64,
}

/// A tensor: some values of a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) storage: Storage,
    /// First value in the storage.
    pub(super) offset: u64,
    pub(super) shape: Vec<u64>,
    pub(super) strides: Vec<u64>,
}

impl View {
    /// Checks that the values lie row after row, without gaps.
    pub(super) fn check_strides(&self, name: &str) -> Result<(), Problem> {
        let mut step = 1_u64;
        for (dim, stride) in self.shape.iter().zip(&self.strides).rev() {
            if *dim > 1 && *stride != step {
                return Err(Problem::Key {
                    key: format!("the strides of tensor {name}"),
                    value: format!("{:?} for shape {:?}", self.strides, self.shape),
                    accepted: "those of contiguous rows".to_owned(),
                });
            }
            step = step.saturating_mul(*dim);
        }
        Ok(())
    }
}
