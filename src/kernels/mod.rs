//! The arithmetic of a pass on the CPU, row by row.
//!
//! Every function here gives a row the same bits whatever other rows it is computed with and on
//! however many threads: sums run in one fixed order that depends on the width of the row alone, and
//! threads only ever divide outputs among themselves. AVX-512 or AVX2 with FMA is used where the
//! machine has it, with the same lanes, order and roundings as the portable code, hence the same bits.

mod act;
mod attention;
mod dot;
mod exec;
mod format;
mod linear;
mod memory;
mod norm;
mod pace;
mod panel;
mod rope;
mod simd;
mod softmax;
mod unpack;
mod unpack_k;

#[cfg(test)]
mod tests;

pub use act::silu_mul;
pub use attention::{Attention, Keys};
pub use exec::{Exec, Threads};
pub use format::Format;
pub use linear::{Weight, WeightError};
pub use memory::Memory;
pub use norm::rms_norm;
pub use rope::Rope;
pub(crate) use softmax::softmax;
