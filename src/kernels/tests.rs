//! Kernels against `f64` twins, unpackers against candle, and instruction sets against each other.

use candle_core::{
    Device, Tensor,
    quantized::{GgmlDType, QStorage, QTensor},
};
use half::{bf16, f16};

use super::{
    act::{SiluMul, exp},
    attention::Group,
    linear::Tile,
    norm::RmsNorm,
    panel::{Inputs, Rounded},
    simd::Isa,
    *,
};

/// Values in about -1..1, different for every index and `seed`.
fn values(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_769) | 1;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from((state >> 16) as u16) / 32_768.0 - 1.0
        })
        .collect()
}

fn ggml(format: Format) -> Option<GgmlDType> {
    Some(match format {
        Format::F32 => GgmlDType::F32,
        Format::F16 => GgmlDType::F16,
        Format::BF16 => GgmlDType::BF16,
        Format::Q4_0 => GgmlDType::Q4_0,
        Format::Q4_1 => GgmlDType::Q4_1,
        Format::Q5_0 => GgmlDType::Q5_0,
        Format::Q5_1 => GgmlDType::Q5_1,
        Format::Q8_0 => GgmlDType::Q8_0,
        Format::Q8_1 => return None,
        Format::Q2K => GgmlDType::Q2K,
        Format::Q3K => GgmlDType::Q3K,
        Format::Q4K => GgmlDType::Q4K,
        Format::Q5K => GgmlDType::Q5K,
        Format::Q6K => GgmlDType::Q6K,
        Format::Q8K => GgmlDType::Q8K,
    })
}

/// A matrix of plausible bytes in `format`, quantised by candle where it can.
fn bytes(format: Format, outputs: usize, width: usize) -> Vec<u8> {
    let floats = values(7, outputs * width);
    let Some(dtype) = ggml(format) else {
        let blocks = (0..=255)
            .cycle()
            .zip(floats.chunks_exact(32))
            .flat_map(|(i, block)| {
                let head = [f16::from_f32(block[0] / 64.0), f16::from_f32(1.0)];
                let quants = (0u8..32).map(move |j| j.wrapping_mul(53).wrapping_add(i));
                head.into_iter().flat_map(f16::to_le_bytes).chain(quants)
            });
        return blocks.collect();
    };
    let tensor = Tensor::from_vec(floats, (outputs, width), &Device::Cpu).expect("shape");
    let quantised = QTensor::quantize(&tensor, dtype).expect("quantised");
    quantised.data().expect("bytes").into_owned()
}

fn weight(format: Format, outputs: usize, width: usize) -> Weight {
    Weight::new(format, outputs, width, bytes(format, outputs, width)).expect("whole blocks")
}

fn unpacked(weight: &Weight) -> Vec<f32> {
    let mut all = vec![0.0; weight.outputs() * weight.width()];
    for (j, row) in all.chunks_exact_mut(weight.width()).enumerate() {
        weight.unpack_row(j, row);
    }
    all
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn unpackers_equal_candles_bit_for_bit() {
    for format in Format::ALL {
        let Some(dtype) = ggml(format) else { continue };
        let (outputs, width) = (5, 768);
        let bytes = bytes(format, outputs, width);
        let storage = QStorage::from_data((&bytes).into(), &Device::Cpu, dtype).expect("storage");
        let theirs = QTensor::new(storage, (outputs, width))
            .and_then(|t| t.dequantize(&Device::Cpu))
            .and_then(|t| t.flatten_all())
            .and_then(|t| t.to_vec1::<f32>())
            .expect("candle dequantises it");
        let ours = unpacked(&weight(format, outputs, width));
        assert_eq!(bits(&ours), bits(&theirs), "{format}");
        let spread = theirs.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        assert!(spread > 0.5, "{format}: nothing to compare, {spread}");
    }
}

#[test]
fn q8_1_is_scale_times_value() {
    let weight = weight(Format::Q8_1, 2, 64);
    let bytes = bytes(Format::Q8_1, 2, 64);
    let expected = bytes.chunks_exact(36).flat_map(|b| {
        let d = f16::from_le_bytes([b[0], b[1]]).to_f32();
        b[4..].iter().map(move |q| f32::from(*q as i8) * d)
    });
    assert_eq!(unpacked(&weight), expected.collect::<Vec<_>>());
}

#[test]
fn every_half_converts_as_in_the_half_crate() {
    for h in 0..=u16::MAX {
        let (ours, theirs) = (unpack::half(h.to_le_bytes()), f16::from_bits(h).to_f32());
        let same = ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan();
        assert!(same, "{h:#06x}: {ours} and {theirs}");
    }
    let b = bf16::from_f32(-3.140_625);
    let row = Weight::new(Format::BF16, 1, 1, b.to_le_bytes().to_vec()).expect("one value");
    assert_eq!(unpacked(&row), [-3.140_625]);
}

#[test]
fn linear_is_near_the_exact_product_and_equal_row_by_row() {
    for format in Format::ALL {
        for (outputs, width) in [(1, 256), (7, 768), (70, 256), (33, 512)] {
            let weight = weight(format, outputs, width);
            let w = unpacked(&weight);
            for rows in [1, 2, 3, 5, 8, 9, 17] {
                let x = values(3, rows * width);
                let mut y = vec![0.0; rows * outputs];
                weight.apply(&x, &mut y, Exec::Serial);
                for (r, x) in x.chunks_exact(width).enumerate() {
                    let mut alone = vec![0.0; outputs];
                    weight.apply(x, &mut alone, Exec::Serial);
                    let of_pack = &y[r * outputs..(r + 1) * outputs];
                    assert_eq!(bits(of_pack), bits(&alone), "{format} row {r} of {rows}");
                    for (y, w) in alone.iter().zip(w.chunks_exact(width)) {
                        let exact: f64 = products(x, w).sum();
                        let size: f64 = products(x, w).map(f64::abs).sum();
                        let rounding = if weight.is_quantised() {
                            lost(x, w)
                        } else {
                            0.0
                        };
                        let most = rounding + 1e-6 * size;
                        assert!((f64::from(*y) - exact).abs() <= most, "{format}");
                    }
                }
            }
        }
    }
}

/// The most that a product loses where activations are rounded, by blocks of 32: half an integer of the
/// 32,767 that the greatest becomes.
fn lost(x: &[f32], w: &[f32]) -> f64 {
    let blocks = x.chunks_exact(32).zip(w.chunks_exact(32));
    let lost = blocks.map(|(x, w)| {
        let top = x.iter().fold(0.0f32, |top, x| top.max(x.abs()));
        let weights: f64 = w.iter().map(|w| f64::from(w.abs())).sum();
        f64::from(top) / 65_534.0 * weights
    });
    lost.sum()
}

fn products<'a>(x: &'a [f32], w: &'a [f32]) -> impl Iterator<Item = f64> + 'a {
    x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w))
}

/// Of one block by a weight of one in each column.
fn sum_of(block: [f32; 32]) -> f32 {
    let one = [f16::from_f32(1.0).to_le_bytes().to_vec(), vec![1; 32]].concat();
    let ones = Weight::new(Format::Q8_0, 1, 32, one).expect("a block");
    let mut y = [0.0];
    ones.apply(&block, &mut y, Exec::Serial);
    y[0]
}

#[test]
fn activations_of_any_size_are_rounded_to_sixteen_bits() {
    let of = |scale: f32| std::array::from_fn(|i| scale * [1.0, -0.25, 0.4, 0.1][i % 4]);
    for power in -110..=120 {
        let scale = 2f32.powi(power);
        let exact = f64::from(scale) * 10.0;
        let far = (f64::from(sum_of(of(scale))) - exact).abs();
        assert!(far <= 32.0 * f64::from(scale) / 65_534.0, "2^{power}");
    }
    for power in -149..-110 {
        let scale = 2f32.powi(power);
        assert!(sum_of(of(scale)).abs() <= 10.1 * scale, "2^{power}");
    }
    assert_eq!(sum_of([0.0; 32]), 0.0);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for place in 0..32 {
            let mut block = of(1.0);
            block[place] = bad;
            assert!(sum_of(block).is_nan(), "{bad} at {place}");
        }
    }
}

#[test]
fn the_greatest_sums_fit() {
    for format in [
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q4K,
        Format::Q6K,
    ] {
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            let (outputs, width) = (32, 256);
            let size = format.row_bytes(width).expect("whole blocks") * outputs;
            let weight = Weight::new(format, outputs, width, vec![byte; size]).expect("a matrix");
            let w = unpacked(&weight);
            for x in [1.0, -1.0].map(|x| vec![x; width]) {
                let mut y = vec![0.0; outputs];
                weight.apply(&x, &mut y, Exec::Serial);
                let exact: f64 = products(&x, &w[..width]).sum();
                let size: f64 = w[..width].iter().map(|w| f64::from(w.abs())).sum();
                let near = (f64::from(y[0]) - exact).abs() <= 1e-6 * size;
                assert!(
                    near || exact.is_nan() && y[0].is_nan(),
                    "{format} {byte:#x}: {exact}, {}",
                    y[0]
                );
            }
        }
    }
}

#[test]
fn odd_widths_and_threads_change_no_bit() {
    for width in [1, 8, 31, 33, 100, 1000] {
        let weight = weight(Format::F32, 700, width);
        let x = values(5, 9 * width);
        let mut serial = vec![0.0; 9 * 700];
        weight.apply(&x, &mut serial, Exec::Serial);
        for threads in [2, 3, 4] {
            let mut y = vec![0.0; 9 * 700];
            let threads = Threads::new(Some(threads)).expect("threads");
            threads.run(usize::MAX, |exec| weight.apply(&x, &mut y, exec));
            assert_eq!(bits(&y), bits(&serial), "width {width}");
        }
        let exact: f64 = products(&x[..width], &unpacked(&weight)[..width]).sum();
        assert!((f64::from(serial[0]) - exact).abs() < 1e-4);
    }
}

#[test]
fn instruction_sets_agree_bit_for_bit() {
    for format in Format::ALL {
        let (outputs, width, rows) = (38, 768, 9);
        let weight = weight(format, outputs, width);
        let x = values(3, rows * width);
        let rounded = Rounded::new(&x);
        let inputs = Inputs {
            x: &x,
            rounded: &rounded,
            width,
        };
        let run = |isa| {
            let mut y = vec![0.0; rows * outputs];
            let tile = Tile {
                weight: &weight,
                first: 0,
                inputs,
                y: y.chunks_exact_mut(outputs).collect(),
            };
            tile.compute(isa);
            bits(&y)
        };
        for isa in Isa::all() {
            assert_eq!(run(isa), run(Isa::Portable), "{format}, {isa:?}");
        }
    }

    let (x, w) = (values(1, 300), values(2, 100));
    let norm = |isa: Isa| {
        let mut out = vec![0.0; 300];
        isa.run(RmsNorm {
            x: &x,
            weight: &w,
            eps: 1e-5,
            out: &mut out,
        });
        bits(&out)
    };
    let gated = |isa: Isa| {
        let mut gate = x.clone();
        isa.run(SiluMul {
            gate: &mut gate,
            up: &values(4, 300),
        });
        bits(&gate)
    };
    for isa in Isa::all() {
        assert_eq!(norm(isa), norm(Isa::Portable), "{isa:?}");
        assert_eq!(gated(isa), gated(Isa::Portable), "{isa:?}");
    }

    for head_dim in [12, 64, 84, 128] {
        let (q, kv) = (values(1, 4 * head_dim), values(2, 50 * 2 * head_dim));
        let attention = Attention {
            head_dim,
            ..attention(&q, &kv, &kv)
        };
        let slots: Vec<u32> = (0..50).rev().collect();
        let run = |isa: Isa| {
            let mut out = vec![0.0; 2 * head_dim];
            isa.run(Group {
                attention: &attention,
                keys: Keys {
                    prefix: &slots[..40],
                    path: &slots[40..],
                },
                q: &q[2 * head_dim..],
                kv_head: 1,
                out: &mut out,
            });
            bits(&out)
        };
        for isa in Isa::all() {
            assert_eq!(run(isa), run(Isa::Portable), "{head_dim}, {isa:?}");
        }
    }
}

/// Two rows of four heads on two key heads of 12 values.
fn attention<'a>(q: &'a [f32], k: &'a [f32], v: &'a [f32]) -> Attention<'a> {
    Attention {
        q,
        k,
        v,
        heads: 4,
        kv_heads: 2,
        head_dim: 12,
    }
}

#[test]
fn attention_is_near_the_exact_softmax_and_blind_to_slots() {
    let (rows, count) = (2, 37);
    let q: Vec<f32> = values(1, rows * 48).iter().map(|x| 4.0 * x).collect();
    let (k, v) = (values(2, count * 24), values(3, count * 24));
    let slots: Vec<u32> = (0..37).collect();
    let keys = |slots: &'_ [u32]| {
        let (a, b) = slots.split_at(30);
        [(a, b), (&slots[..1], &slots[5..9])].map(|(a, b)| (a.to_vec(), b.to_vec()))
    };
    let run = |k: &[f32], v: &[f32], slots: &[u32]| {
        let lists = keys(slots);
        let keys = [&lists[0], &lists[1]].map(|(prefix, path)| Keys { prefix, path });
        let mut out = vec![0.0; rows * 48];
        attention(&q, k, v).apply(&keys, &mut out, Exec::Serial);
        out
    };
    let out = run(&k, &v, &slots);

    for (r, (prefix, path)) in keys(&slots).iter().enumerate() {
        for h in 0..4 {
            let at = |slot: &u32| *slot as usize * 24 + h / 2 * 12;
            let q = &q[r * 48 + h * 12..][..12];
            let all = || prefix.iter().chain(path);
            let weights: Vec<f64> = all()
                .map(|s| (products(q, &k[at(s)..][..12]).sum::<f64>() / 12f64.sqrt()).exp())
                .collect();
            let total: f64 = weights.iter().sum();
            for d in 0..12 {
                let value = all()
                    .zip(&weights)
                    .map(|(s, w)| w * f64::from(v[at(s) + d]));
                let exact = value.sum::<f64>() / total;
                let ours = f64::from(out[r * 48 + h * 12 + d]);
                assert!((ours - exact).abs() < 1e-6, "{ours} and {exact}");
            }
        }
    }

    // The same keys and values in other slots, strangers in between.
    let moved: Vec<u32> = (0..37).map(|i| (i * 29 + 11) % 101).collect();
    let [mut k2, mut v2] = [values(8, 101 * 24), values(9, 101 * 24)];
    for (from, to) in moved.iter().enumerate() {
        let to = *to as usize * 24;
        k2[to..to + 24].copy_from_slice(&k[from * 24..(from + 1) * 24]);
        v2[to..to + 24].copy_from_slice(&v[from * 24..(from + 1) * 24]);
    }
    assert_eq!(bits(&run(&k2, &v2, &moved)), bits(&out));
}

#[test]
fn exponential_is_accurate_and_total() {
    let mut worst = 0.0f64;
    for i in -8730i16..8800 {
        let x = f32::from(i) / 100.0;
        let exact = f64::from(x).exp();
        worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
    }
    assert!(worst < 2.5e-7, "relative error {worst}");
    assert_eq!(exp(0.0), 1.0);
    assert_eq!((exp(-200.0), exp(f32::NEG_INFINITY)), (0.0, 0.0));
    assert!(exp(f32::INFINITY) > 1e38 && exp(f32::NAN).is_nan());
}

#[test]
fn norm_and_gate_are_near_the_exact_ones() {
    let (x, w) = (values(1, 3 * 77), values(2, 77));
    let mut out = vec![0.0; 3 * 77];
    rms_norm(&x, &w, 1e-5, &mut out);
    for (x, out) in x.chunks_exact(77).zip(out.chunks_exact(77)) {
        let mean = products(x, x).sum::<f64>() / 77.0;
        for ((x, w), out) in x.iter().zip(&w).zip(out) {
            let exact = f64::from(*x) / (mean + 1e-5).sqrt() * f64::from(*w);
            assert!((f64::from(*out) - exact).abs() < 1e-6);
        }
    }
    let gate: Vec<f32> = x.iter().map(|x| 20.0 * x).collect();
    let mut out = gate.clone();
    silu_mul(&mut out, &x, Exec::Serial);
    for ((g, up), out) in gate.iter().zip(&x).zip(out) {
        let (g, up) = (f64::from(*g), f64::from(*up));
        let exact = g / (1.0 + (-g).exp()) * up;
        assert!((f64::from(out) - exact).abs() <= 1e-6 * exact.abs().max(1.0));
    }
}

#[test]
fn rope_turns_pairs_by_position_times_frequency() {
    let rope = Rope::new((0..4).map(|i| 0.1f32.powi(i)).collect());
    let mut table = vec![0.0; rope.width()];
    rope.table(5, &mut table);
    let mut row = values(1, 16);
    let before = row.clone();
    rope.turn(&mut row, &table);
    for head in 0..2 {
        for (i, power) in (0..4).zip(0..) {
            let (a, b) = (before[head * 8 + i], before[head * 8 + 4 + i]);
            let angle = 5.0 * 0.1f64.powi(power);
            let real = f64::from(a) * angle.cos() - f64::from(b) * angle.sin();
            let imaginary = f64::from(b) * angle.cos() + f64::from(a) * angle.sin();
            assert!((f64::from(row[head * 8 + i]) - real).abs() < 1e-6);
            assert!((f64::from(row[head * 8 + 4 + i]) - imaginary).abs() < 1e-6);
        }
    }
}

#[test]
fn bytes_that_are_no_matrix_are_refused() {
    let ragged =
        Weight::new(Format::Q4_0, 2, 40, vec![0; 45]).expect_err("40 is no multiple of 32");
    assert_eq!(
        ragged.to_string(),
        "rows of 40 values are no whole blocks of q4_0 (32 values each)"
    );
    for bytes in [0, 17, 37] {
        let size = Weight::new(Format::Q4_0, 2, 32, vec![0; bytes]).expect_err("36 are needed");
        assert!(
            size.to_string().starts_with(&format!("{bytes} bytes")),
            "{size}"
        );
    }
    assert!(Weight::new(Format::F32, usize::MAX, 8, vec![0; 32]).is_err());
    for format in Format::ALL {
        for (outputs, width) in [(0, 0), (0, 256), (3, 0)] {
            let empty = Weight::new(format, outputs, width, vec![]).expect_err("nothing in it");
            let words = format!("{outputs} rows of {width} values are no matrix");
            assert!(empty.to_string().starts_with(&words), "{format}: {empty}");
        }
    }
}

#[test]
fn bytes_of_a_shape_are_those_of_its_matrix() {
    for format in Format::ALL {
        for outputs in [1, 32, 33, 70] {
            let bytes = vec![0; outputs * format.row_bytes(512).expect("whole blocks")];
            let stored = bytes.len();
            let weight = Weight::new(format, outputs, 512, bytes).expect("a matrix");
            let packed = Weight::packed_bytes(format, outputs, 512);
            assert_eq!(packed, Some(weight.bytes()), "{format} {outputs}");
            // Half a bit a weight for scales and six bits in eight are not what is stored.
            let more = outputs.is_multiple_of(32) && format == Format::Q6K;
            assert!(!more || weight.bytes() > stored, "{stored}");
        }
    }
    assert_eq!(Weight::packed_bytes(Format::Q6K, 1, 255), None);
}

#[test]
fn what_has_no_size_gives_nothing_and_does_not_panic() {
    let mut none: [f32; 0] = [];
    rms_norm(&[], &[], 1e-5, &mut none);
    silu_mul(&mut none, &[], Exec::Parallel);
    assert_eq!(softmax(&[], &mut none), f32::NEG_INFINITY);
    let rope = Rope::new(Vec::new());
    rope.table(3, &mut none);
    let mut row = [1.0, 2.0];
    rope.turn(&mut row, &none);
    assert_eq!(row, [1.0, 2.0]);
    weight(Format::F32, 3, 8).apply(&[], &mut none, Exec::Serial);
    Weight::apply_all([], &[1.0], Exec::Serial);
    let (q, k) = (values(1, 48), values(2, 24));
    let keys = |slots| Keys {
        prefix: slots,
        path: &[],
    };
    // The second of three rows attends to nothing, which its neighbours do not notice.
    let q = [&q[..], &q[..], &q[..]].concat();
    let mut out = vec![f32::NAN; q.len()];
    let all = attention(&q, &k, &k);
    let rows = q.len() / (all.heads * all.head_dim);
    let slots: Vec<_> = (0..rows)
        .map(|row| keys(if row == 1 { &[][..] } else { &[0] }))
        .collect();
    all.apply(&slots, &mut out, Exec::Serial);
    let row = out.len() / rows;
    assert!(out[row..2 * row].iter().all(|x| *x == 0.0), "{out:?}");
    assert!(out[..row].iter().all(|x| x.is_finite() && *x != 0.0));
    assert_eq!(out[..row], out[2 * row..3 * row]);
    for (heads, kv_heads, head_dim) in [(0, 0, 0), (2, 0, 8), (2, 1, 0), (1, 2, 8)] {
        let nothing = Attention {
            heads,
            kv_heads,
            head_dim,
            ..all
        };
        nothing.apply(&[], &mut none, Exec::Parallel);
    }
}

#[test]
fn the_latest_keys_are_the_last_of_both_lists() {
    let (prefix, path) = (&[4, 9, 2][..], &[7, 1][..]);
    let latest = |window| {
        let keys = Keys { prefix, path }.latest(window);
        [keys.prefix, keys.path].concat()
    };
    assert_eq!(latest(9), [4, 9, 2, 7, 1]);
    assert_eq!(latest(4), [9, 2, 7, 1]);
    assert_eq!(latest(1), [1]);
    assert_eq!(latest(0), [0; 0]);
}
