//! EAGLE heads: the networks, what the drafter knows, and what it drafts.

mod cases;
mod drafts;
mod heads;
mod law;
mod network;
mod probe;
mod state;
mod twin;
