#![doc = include_str!("../README.md")]

pub mod chi2;
pub mod every;
