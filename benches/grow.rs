//! Trees grown over ready logits: what growth costs around a drafter's passes.

use criterion::{BatchSize, Criterion, Throughput, criterion_group};
use eyrie::{
    Matrix, SeqId,
    draft::{Anchor, Feed, Pick, Shape, Tip, grow},
    error::Result,
    sample::{Chain, Counts, Key, Keyed, RawParams, SamplingParams, choose, choose_best},
    tree::DraftTree,
};

/// Vocabularies of SmolLM2 and of Llama 3.
const VOCABS: [usize; 2] = [49_152, 128_256];

/// Logits with the spread of a language model's, another row for each token.
fn row(vocab: usize, token: u32) -> Vec<f32> {
    let mut x = token.wrapping_mul(0x9E37_79B1) | 1;
    let mut unit = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(x >> 16).unwrap_or(0)) / 65_536.0
    };
    (0..vocab)
        .map(|_| (0..6).map(|_| unit()).sum::<f32>() * 4.0 - 12.0)
        .collect()
}

/// Says one of a few ready rows after each token.
struct Ready {
    rows: Vec<Vec<f32>>,
    vocab: usize,
}

impl Feed for Ready {
    fn feed(&mut self, tips: &[Tip]) -> Result<Option<Matrix>> {
        let row = |tip: &Tip| &self.rows[tip.token as usize % self.rows.len()];
        let data = tips.iter().flat_map(row).copied().collect();
        Ok(Some(Matrix::new(self.vocab, data)))
    }
}

fn chain(vocab: usize, temperature: f64) -> Chain {
    let raw = RawParams {
        temperature,
        ..RawParams::default()
    };
    let params = SamplingParams::new(raw).expect("in range");
    Chain::new(params, vocab, vocab, Vec::new()).expect("no bias")
}

fn trees(c: &mut Criterion) {
    for vocab in VOCABS {
        let mut group = c.benchmark_group(format!("cpu/grow/{vocab}"));
        group.sample_size(20);
        let cases = [
            ("chain-4/coupled", Pick::Coupled, 1.0, (1, 4, 4)),
            ("4x5x24/temperature-0", Pick::Coupled, 0.0, (4, 5, 24)),
            ("4x5x24/greedy", Pick::Greedy, 1.0, (4, 5, 24)),
            ("4x5x24/coupled", Pick::Coupled, 1.0, (4, 5, 24)),
            ("4x5x24/drawn", Pick::Drawn, 1.0, (4, 5, 24)),
        ];
        let rows = (0..8).map(|token| row(vocab, token)).collect();
        let mut feed = Ready { rows, vocab };
        let counts = Counts::new(&[1]);
        for (name, pick, temperature, (topk, depth, nodes)) in cases {
            let chains = [chain(vocab, temperature)];
            group.throughput(Throughput::Elements(nodes as u64));
            group.bench_function(name, |b| {
                b.iter_batched(
                    DraftTree::new,
                    |mut tree| {
                        let mut anchor = Anchor {
                            seq: SeqId(0),
                            tokens: &[1],
                            round: 0,
                            depth,
                            nodes,
                            chain: &chains[0],
                            counts: &counts,
                            draws: &mut Keyed::new(7),
                        };
                        let (mut anchors, mut trees) = ([&mut anchor], [&mut tree]);
                        let shape = Shape { pick, topk };
                        let grown = grow(&mut anchors, &mut trees, &chains, shape, &mut feed);
                        grown.expect("rows for every tip");
                        tree
                    },
                    BatchSize::LargeInput,
                );
            });
        }
        group.finish();
    }
}

/// One token, the best few with their shares, and the twin of the latter: sort all.
fn children(c: &mut Criterion) {
    for vocab in VOCABS {
        let mut group = c.benchmark_group(format!("cpu/children/{vocab}"));
        group.throughput(Throughput::Elements(vocab as u64));
        let history = eyrie::sample::History {
            counts: &Counts::new(&[]),
            tokens: &[],
            path: &[],
        };
        let law = chain(vocab, 1.0).law(&row(vocab, 3), &history);
        let (law, keyed) = (law.expect("finite logits"), Keyed::new(3));
        let mut t = 0;
        let mut next = || {
            t += 1;
            t
        };
        group.bench_function("choose", |b| b.iter(|| choose(&law, next(), &keyed)));
        group.bench_function("choose-best-4", |b| {
            b.iter(|| choose_best(&law, next(), &keyed, 4));
        });
        group.bench_function("choose-best-4-naive", |b| {
            b.iter(|| {
                use eyrie::sample::Draws;
                let at = Key::token(next());
                let noisy = law.iter().map(|(id, ln)| (id, ln + keyed.gumbel(at, id)));
                let mut all: Vec<_> = noisy.collect();
                let total: f64 = all.iter().map(|(_, s)| s.exp()).sum();
                all.sort_by(|a, b| b.1.total_cmp(&a.1));
                all.truncate(4);
                all.iter_mut().for_each(|(_, s)| *s -= total.ln());
                all
            });
        });
        group.finish();
    }
}

criterion_group!(benches, trees, children);
