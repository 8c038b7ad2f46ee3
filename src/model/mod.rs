//! Networks: what a checkpoint holds, and the pass over it.

mod block;
pub mod config;
mod decoder;
mod dtype;
mod limits;
mod linear;
pub mod load;
mod plan;
mod rope;
mod rows;
mod target;
mod tensor;

pub use decoder::Forward;
pub use dtype::Dtype;
pub use linear::Linear;
pub use rows::{Rows, Span, Wanted};
pub use target::{Llama, LoadOptions, Target};
pub use tensor::{RowInvariance, TensorLlama};
