//! `cpu/linear`: all matrices of a model by format and rows, candle's own beside them. Throughput is
//! bytes of weights a second, whatever the rows: compare with `cpu/memory/read`.

use std::{hint::black_box, time::Duration};

use candle_core::{
    Device, Module, Tensor,
    quantized::{GgmlDType, QMatMul, QStorage, QTensor},
};
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, measurement::WallTime};
use eyrie::kernels::{Format, Threads, Weight};

use crate::values;

/// One layer of SmolLM2-135M.
const LAYER: [(usize, usize); 7] = [
    (576, 576),
    (192, 576),
    (192, 576),
    (576, 576),
    (1536, 576),
    (1536, 576),
    (576, 1536),
];
const LAYERS: usize = 30;
const HEAD: (usize, usize) = (49_152, 576);
const ROWS: [usize; 4] = [1, 4, 8, 16];

const FORMATS: [(Format, GgmlDType); 8] = [
    (Format::F32, GgmlDType::F32),
    (Format::BF16, GgmlDType::BF16),
    (Format::F16, GgmlDType::F16),
    (Format::Q8_0, GgmlDType::Q8_0),
    (Format::Q4_0, GgmlDType::Q4_0),
    (Format::Q4_1, GgmlDType::Q4_1),
    (Format::Q4K, GgmlDType::Q4K),
    (Format::Q6K, GgmlDType::Q6K),
];

/// Matrices each in memory of its own, in one format.
struct Matrices {
    name: String,
    format: Format,
    dtype: GgmlDType,
    /// Outputs, width and bytes; each `copies` times.
    stored: Vec<(usize, usize, Vec<u8>)>,
    copies: usize,
}

impl Matrices {
    fn new(part: &str, shapes: &[(usize, usize)], copies: usize, of: (Format, GgmlDType)) -> Self {
        let (format, dtype) = of;
        let (block, _) = format.block();
        let stored = shapes.iter().map(|(outputs, width)| {
            // 576 is no multiple of the 256 of a k-quant.
            let width = width / block * block;
            let floats = values(outputs * width);
            let floats = Tensor::from_vec(floats, (*outputs, width), &Device::Cpu);
            let quantised = QTensor::quantize(&floats.expect("a matrix"), dtype);
            let bytes = quantised.and_then(|q| Ok(q.data()?.into_owned()));
            (*outputs, width, bytes.expect("quantised"))
        });
        Self {
            name: format!("{part}/{format}"),
            format,
            dtype,
            stored: stored.collect(),
            copies,
        }
    }

    fn bytes(&self) -> u64 {
        let one: usize = self.stored.iter().map(|(_, _, bytes)| bytes.len()).sum();
        (self.copies * one) as u64
    }

    fn all(&self) -> impl Iterator<Item = &(usize, usize, Vec<u8>)> {
        std::iter::repeat_n(&self.stored, self.copies).flatten()
    }

    fn ours(&self, group: &mut BenchmarkGroup<'_, WallTime>) {
        let threads = Threads::new(Some(2)).expect("two threads");
        let weights = self.all().map(|(outputs, width, bytes)| {
            Weight::new(self.format, *outputs, *width, bytes.clone()).expect("a matrix")
        });
        let weights: Vec<Weight> = weights.collect();
        for rows in ROWS {
            let x = values(rows * 1536);
            let mut y = vec![0.0; rows * HEAD.0];
            group.bench_function(format!("{}/{rows}", self.name), |b| {
                threads.run(usize::MAX, |exec| {
                    b.iter(|| {
                        for weight in &weights {
                            let x = &x[..rows * weight.width()];
                            let y = &mut y[..rows * weight.outputs()];
                            weight.apply(black_box(x), y, exec);
                        }
                    });
                });
            });
        }
    }

    /// candle's: `matmul` in f32, `QMatMul` where it computes on quants.
    fn candles(&self, group: &mut BenchmarkGroup<'_, WallTime>) {
        let matrices = self.all().map(|(outputs, width, bytes)| {
            let storage = QStorage::from_data(bytes.into(), &Device::Cpu, self.dtype);
            let matrix = QTensor::new(storage.expect("bytes"), (*outputs, *width));
            let matrix = matrix.and_then(QMatMul::from_qtensor);
            (*width, matrix.expect("a matrix"))
        });
        let matrices: Vec<(usize, QMatMul)> = matrices.collect();
        for rows in ROWS {
            let x =
                |width: usize| Tensor::from_vec(values(rows * width), (rows, width), &Device::Cpu);
            let xs: Vec<Tensor> = [1536, 576, 512].map(|width| x(width).expect("rows")).into();
            group.bench_function(format!("{}-candle/{rows}", self.name), |b| {
                b.iter(|| {
                    for (width, matrix) in &matrices {
                        let x = xs
                            .iter()
                            .find(|x| x.dims()[1] == *width)
                            .expect("its width");
                        black_box(matrix.forward(x).expect("a product"));
                    }
                });
            });
        }
    }
}

fn linear(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/linear");
    group.sample_size(10);
    group.warm_up_time(Duration::from_millis(200));
    group.measurement_time(Duration::from_millis(800));
    for of in FORMATS {
        for (part, shapes, copies) in [("layers", &LAYER[..], LAYERS), ("head", &[HEAD][..], 1)] {
            let matrices = Matrices::new(part, shapes, copies, of);
            group.throughput(Throughput::Bytes(matrices.bytes()));
            matrices.ours(&mut group);
            // It turns 16-bit floats into f32 first.
            if !matches!(of.0, Format::BF16 | Format::F16) && part == "layers" {
                matrices.candles(&mut group);
            }
        }
    }
    group.finish();
}

criterion_group!(benches, linear);
