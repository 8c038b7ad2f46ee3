//! The benches, one binary. Names are `<device>/<stage>/<size>`; the bench of a fast path has its
//! naive twin in the same group. Where memory counts, throughput is in bytes: what `cpu/memory/read`
//! reaches is the ceiling.

mod accept;
mod attention;
mod cache;
mod forward;
mod grow;
mod head;
mod judge;
mod linear;
mod memory;
mod ngram;
mod round;
mod sample;

/// Values between -1 and 1, in no order.
fn values(count: usize) -> Vec<f32> {
    let mut mixed = 1u32;
    let next = std::iter::repeat_with(|| {
        mixed = mixed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [.., low, high] = mixed.to_le_bytes();
        f32::from(i16::from_le_bytes([low, high])) / 32_768.0
    });
    next.take(count).collect()
}

criterion::criterion_main!(
    memory::benches,
    linear::benches,
    attention::benches,
    ngram::benches,
    sample::benches,
    grow::benches,
    head::benches,
    accept::benches,
    cache::benches,
    forward::benches,
    round::benches,
    judge::benches
);
