//! Linear layers: for any weights, rows and threads, a row has the bits that it has alone, on one
//! thread; and what it has is near the sum in `f64`.
//!
//! Near: within 64 roundings (64 x 2^-24) of the sum of the products' sizes, where a weight is as
//! large as any that the scales of its block can express: a block's summand and its multiples may be
//! added up apart. Sums are compared where they stay far from the ends of `f32`.

#![no_main]

use std::{ops::Range, sync::OnceLock};

use arbitrary::Arbitrary;
use eyrie::kernels::{Exec, Format, Threads, Weight};
use libfuzzer_sys::fuzz_target;

const TOLERANCE: f64 = 64.0 / (1u32 << 24) as f64;

/// What results of the smallest numbers may lack.
const TINY: f64 = 1e-36;

#[derive(Arbitrary, Debug)]
struct Case {
    format: u8,
    outputs: u8,
    blocks: u16,
    rows: u8,
    threads: u8,
    /// The row that is compared with the sum in `f64`.
    position: u8,
    seed: u32,
    /// Weights have scales of any bits, NaN among them.
    wild: bool,
    /// Bytes of the weights and of the activations that are not the seed's.
    weights: Vec<(u32, u8)>,
    activations: Vec<(u16, f32)>,
}

/// Bytes of a block that hold its quants; the rest are scales.
fn quants(format: Format) -> Range<usize> {
    match format {
        Format::F32 | Format::F16 | Format::BF16 => 0..0,
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => 2..format.block().1,
        Format::Q4_1 | Format::Q5_1 | Format::Q8_1 => 4..format.block().1,
        Format::Q2K => 16..80,
        Format::Q3K => 0..96,
        Format::Q4K | Format::Q5K => 16..format.block().1,
        Format::Q6K => 0..192,
        Format::Q8K => 4..260,
    }
}

fn random(seed: u32) -> impl FnMut() -> u8 {
    let mut state = seed.wrapping_mul(2_654_435_769) | 1;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_le_bytes()[3]
    }
}

impl Case {
    fn format(&self) -> Format {
        Format::ALL[usize::from(self.format) % Format::ALL.len()]
    }

    fn width(&self) -> usize {
        let (block, _) = self.format().block();
        (1 + usize::from(self.blocks) % (768 / block)) * block
    }

    fn outputs(&self) -> usize {
        1 + usize::from(self.outputs) % 160
    }

    fn rows(&self) -> usize {
        1 + usize::from(self.rows) % 64
    }

    fn bytes(&self) -> Vec<u8> {
        let format = self.format();
        let row = format.row_bytes(self.width()).expect("whole blocks");
        let mut next = random(self.seed);
        let mut bytes: Vec<u8> = (0..row * self.outputs()).map(|_| next()).collect();
        if !self.wild {
            // Bit 6 of the last byte of a float is the upper half of its exponents.
            for block in bytes.chunks_exact_mut(format.block().1) {
                for (i, byte) in block.iter_mut().enumerate() {
                    *byte &= if quants(format).contains(&i) {
                        0xFF
                    } else {
                        0xBF
                    };
                }
            }
        }
        for (at, byte) in &self.weights {
            let at = *at as usize % bytes.len();
            bytes[at] = *byte;
        }
        bytes
    }

    fn activations(&self) -> Vec<f32> {
        let mut next = random(!self.seed);
        let mut value = || f32::from(i16::from_le_bytes([next(), next()])) / 8192.0;
        let mut x: Vec<f32> = (0..self.rows() * self.width()).map(|_| value()).collect();
        for (at, value) in &self.activations {
            let at = usize::from(*at) % x.len();
            x[at] = *value;
        }
        x
    }
}

/// Row `output` of each of `weights`.
fn unpacked(weights: &[Weight], output: usize) -> Vec<Vec<f32>> {
    let row = |weight: &Weight| {
        let mut values = vec![0.0; weight.width()];
        weight.unpack_row(output, &mut values);
        values
    };
    weights.iter().map(row).collect()
}

fn pool(count: usize) -> &'static Threads {
    static POOLS: [OnceLock<Threads>; 4] = [const { OnceLock::new() }; 4];
    POOLS[count - 1].get_or_init(|| Threads::new(Some(count)).expect("threads"))
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

fuzz_target!(|case: Case| {
    let (format, outputs, width) = (case.format(), case.outputs(), case.width());
    let matrix =
        |bytes: Vec<u8>| Weight::new(format, outputs, width, bytes).expect("a matrix of its size");
    let bytes = case.bytes();
    let weight = matrix(bytes.clone());
    let x = case.activations();

    let mut pass = vec![f32::NAN; case.rows() * outputs];
    pool(1 + usize::from(case.threads) % 4).run(usize::MAX, |exec| {
        weight.apply(&x, &mut pass, exec);
    });
    let mut alone = vec![f32::NAN; outputs];
    for (r, (x, pass)) in x
        .chunks_exact(width)
        .zip(pass.chunks_exact(outputs))
        .enumerate()
    {
        weight.apply(x, &mut alone, Exec::Serial);
        for (j, (pass, alone)) in pass.iter().zip(&alone).enumerate() {
            assert!(
                same(*pass, *alone),
                "{format} row {r} output {j}: {pass} and {alone} alone"
            );
        }
    }

    // The same scales with other quants.
    let filled = |fill: u8| {
        let mut bytes = bytes.clone();
        for block in bytes.chunks_exact_mut(format.block().1) {
            block[quants(format)].fill(fill);
        }
        matrix(bytes)
    };
    let weights = [weight.clone(), filled(0), filled(0xFF), filled(0x80)];
    let row = usize::from(case.position) % case.rows();
    let x = &x[row * width..][..width];
    for (j, y) in pass[row * outputs..][..outputs].iter().enumerate() {
        let w = unpacked(&weights, j);
        let (mut exact, mut size) = (0.0, 0.0);
        for (i, x) in x.iter().enumerate() {
            let x = f64::from(*x);
            exact += x * f64::from(w[0][i]);
            let peak = w.iter().fold(0.0, |m: f64, w| m + f64::from(w[i]).abs());
            size += x.abs() * peak;
        }
        let largest = x.iter().fold(0.0, |m: f64, x| m.max(f64::from(*x).abs()));
        if size < 1e30 && largest < 1e30 {
            let off = (f64::from(*y) - exact).abs();
            assert!(
                off <= TOLERANCE * size + TINY,
                "{format} row {row} output {j}: {y}, exact {exact}, size {size}"
            );
        }
    }
});
