//! Networks: what a checkpoint holds, and the pass over it.

pub mod config;
pub mod load;
