//! The benches, one binary. Names are `<device>/<stage>/<size>`; the bench of a fast path has its
//! naive twin in the same group.

mod accept;
mod cache;
mod forward;
mod grow;
mod head;
mod judge;
mod round;
mod sample;

criterion::criterion_main!(
    sample::benches,
    grow::benches,
    head::benches,
    accept::benches,
    cache::benches,
    forward::benches,
    round::benches,
    judge::benches
);
