//! The integration tests, one binary.

mod cases;
mod check;
mod cli;
mod commit;
mod device;
mod docs;
mod eagle;
mod engine;
mod fixtures;
mod forward;
pub(crate) mod heads;
mod law;
mod load;
mod lossless;
mod processors;
mod rules;
mod support;
mod text;
mod tidy;
mod train;
mod trees;
