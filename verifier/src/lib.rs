//! The judge: statistical tests of an engine's output law.
