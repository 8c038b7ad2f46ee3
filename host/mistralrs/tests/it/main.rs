//! The host over tiny fixtures: requests as clients send them, and as programs that embed it do.

mod constrained;
mod expected;
mod gate;
mod in_process;
mod law;
mod mixed;
mod models;
mod sampling;
mod support;
mod survives;
mod unread;
mod usage;
