#![doc = include_str!("../README.md")]

pub mod chi2;
pub mod cli;
pub mod cramer;
pub mod e_process;
pub mod every;
pub mod g;
pub mod holm;
pub mod judge;
pub mod monte_carlo;
mod number;
pub mod pit;
mod pool;
pub mod power;
pub mod rng;
pub mod verdict;
