//! The tensor decoder, on the device that `EYRIE_TEST_DEVICE` names: `cpu` (candle's; the default)
//! or `cuda[:N]`. Each test is one function of the device.

mod engine;
mod errors;
mod invariance;
mod parity;
mod speed;

use std::{path::Path, sync::LazyLock};

use candle_core::Device;
use eyrie::{
    Matrix, SeqId, TokenId,
    cache::{KvCache, Txn},
    model::{Dtype, Forward, Llama, LoadOptions, Rows, Target, TensorLlama, load::Checkpoint},
};
use eyrie_fixtures::Fixture;

/// The device under test.
static DEVICE: LazyLock<Device> = LazyLock::new(|| {
    let name = std::env::var("EYRIE_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = match name.split_once(':').unwrap_or((&name, "0")) {
        ("cpu", "0") => Ok(Device::Cpu),
        ("cuda", index) => Device::new_cuda(index.parse().expect("cuda:N")),
        _ => panic!("EYRIE_TEST_DEVICE is {name}, accepted are cpu and cuda:N"),
    };
    device.unwrap_or_else(|error| panic!("EYRIE_TEST_DEVICE {name}: {error}"))
});

/// Tests of the device under test, by function.
macro_rules! test_device {
    ($($name:ident),+ $(,)?) => {
        mod on_device {
            $(#[test] fn $name() { super::$name(&$crate::device::DEVICE); })+
        }
    };
}
use test_device;

/// `f32` results of sums in another order, on logits of a few units.
const TOLERANCE: f32 = 1e-4;

fn options(dtype: &str) -> LoadOptions {
    LoadOptions {
        dtype: dtype.parse::<Dtype>().expect("a dtype"),
        head_dtype: None,
        threads: Some(1),
    }
}

/// The checkpoint at `path` on the device, and by the slice decoder.
fn pair_at(path: &Path, device: &Device) -> (TensorLlama, Llama) {
    let checkpoint = Checkpoint::open(path).expect("it opens");
    let options = options("as-stored");
    let tensors = TensorLlama::load(&checkpoint, &options, device).expect("it loads");
    let slices = Llama::load(&checkpoint, &options).expect("it loads");
    (tensors, slices)
}

/// The fixture on the device, and by the slice decoder.
fn pair(fixture: &Fixture, device: &Device) -> (TensorLlama, Llama) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fixture.write_dir(dir.path()).expect("it is written");
    pair_at(dir.path(), device)
}

fn on_device(fixture: &Fixture, device: &Device) -> TensorLlama {
    pair(fixture, device).0
}

/// A pass over `rows`, of which each sequence keeps the rows that `keep` names.
fn pass(
    target: &dyn Target,
    cache: &mut KvCache,
    rows: &Rows,
    taps: &[usize],
    keep: &[&[usize]],
) -> Forward {
    let mut txn = Txn::begin(cache, &rows.want()).expect("room");
    let out = target.forward(rows, &mut txn, taps).expect("a pass");
    for (span, keep) in rows.spans().iter().zip(keep) {
        txn.commit(span.seq, keep).expect("its rows");
    }
    out
}

/// Tokens of a vocabulary of 64, in no order.
fn tokens(seed: u32, count: u32) -> Vec<TokenId> {
    let mix = |i: u32| {
        (i + 1)
            .wrapping_mul(2_654_435_761)
            .wrapping_add(seed * 7919)
            >> 13
    };
    (0..count).map(|i| mix(i) % 64).collect()
}

fn difference(a: &Matrix, b: &Matrix) -> f32 {
    assert_eq!((a.rows(), a.cols()), (b.rows(), b.cols()));
    let pairs = a.as_slice().iter().zip(b.as_slice());
    pairs.fold(0.0, |most, (a, b)| {
        assert!(a.is_finite() && b.is_finite());
        f32::max(most, (a - b).abs())
    })
}

fn seq(id: u64) -> SeqId {
    SeqId(id)
}
