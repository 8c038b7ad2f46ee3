//! Networks: what a checkpoint holds, and the pass over it.

mod attention;
mod block;
pub mod config;
mod decoder;
mod dtype;
mod limits;
mod linear;
pub mod load;
mod mlp;
mod plan;
mod rope;
mod rows;
mod target;
mod tensor;

pub(crate) use attention::SelfAttention;
pub(crate) use block::{Block, Pass, Scratch, Shape};
pub use decoder::Forward;
pub use dtype::Dtype;
pub(crate) use limits::Limits;
pub use linear::Linear;
pub(crate) use mlp::Mlp;
pub(crate) use plan::Plan;
pub use rows::{Rows, Span, Wanted};
pub use target::{Llama, LoadOptions, Target};
pub use tensor::{RowInvariance, TensorLlama};
