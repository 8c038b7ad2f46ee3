//! EAGLE heads: the networks, what the drafter knows, and what it drafts.

mod constrained;
pub(crate) mod drafts;
mod first_of;
pub(crate) mod heads;
mod law;
pub(crate) mod network;
pub(crate) mod probe;
pub(crate) mod state;
mod twin;
