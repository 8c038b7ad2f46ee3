//! Against candle-transformers' llama on the same random weights.

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Llama as Reference, LlamaConfig};
use eyrie::{SeqId, TokenId, model::Target};
use eyrie_fixtures::{Fixture, Quant, Rope, tt};

use super::{bits, feed, llama, open, tokens};

const TOLERANCE: f32 = 1e-4;

struct Oracle {
    model: Reference,
    config: candle_transformers::models::llama::Config,
}

impl Oracle {
    fn of(fixture: &Fixture) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        fixture.write_dir(dir.path())?;
        let text = std::fs::read_to_string(dir.path().join("config.json"))?;
        let config = serde_json::from_str::<LlamaConfig>(&text)?.into_config(false);
        let tensors =
            candle_core::safetensors::load(dir.path().join("model.safetensors"), &Device::Cpu)?;
        let weights = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
        let model = Reference::load(weights, &config)?;
        Ok(Self { model, config })
    }

    /// Logits after each of `chunks`, fed one after the other.
    fn run(&self, chunks: &[&[TokenId]]) -> anyhow::Result<Vec<Vec<f32>>> {
        let mut cache = Cache::new(true, DType::F32, &self.config, &Device::Cpu)?;
        let mut position = 0;
        let mut all = Vec::new();
        for chunk in chunks {
            let input = Tensor::new(*chunk, &Device::Cpu)?.unsqueeze(0)?;
            let logits = self.model.forward(&input, position, &mut cache)?;
            all.push(logits.flatten_all()?.to_vec1()?);
            position += chunk.len();
        }
        Ok(all)
    }
}

/// Two layers: the seven of TT amplify the last bits of a long context so far that candle differs
/// from itself by more than the tolerance, fed at once and step by step.
fn fixtures() -> Vec<(&'static str, Fixture)> {
    let llama3 = Rope::Llama3 {
        factor: 8.0,
        low: 1.0,
        high: 4.0,
        original: 32,
    };
    let two = Fixture { layers: 2, ..tt() };
    vec![
        ("grouped heads", two.clone()),
        (
            "tied",
            Fixture {
                tied: true,
                ..two.clone()
            },
        ),
        (
            "llama3 rope",
            Fixture {
                rope: llama3,
                ..two.clone()
            },
        ),
        (
            "one key head",
            Fixture {
                kv_heads: 1,
                seed: 3,
                ..two.clone()
            },
        ),
        (
            "a key head each",
            Fixture {
                kv_heads: 4,
                seed: 4,
                ..two.clone()
            },
        ),
        (
            "wide",
            Fixture {
                hidden: 96,
                intermediate: 200,
                heads: 3,
                kv_heads: 1,
                head_dim: 32,
                theta: 100_000.0,
                ..two
            },
        ),
    ]
}

#[test]
fn logits_are_candles_in_f32_prefilled_and_step_by_step() -> anyhow::Result<()> {
    let all = fixtures().into_iter().map(|(name, f)| (name, f, 100));
    for (name, fixture, longest) in all.chain([("seven layers", tt(), 9)]) {
        let oracle = Oracle::of(&fixture)?;
        let ours = llama(&fixture, "f32", 1);
        let mut worst = 0.0f32;
        let mut spread = 0.0f32;
        let prompts = [(1, 1), (2, 9), (3, 64), (4, 100)];
        for (seed, count) in prompts.into_iter().filter(|prompt| prompt.1 <= longest) {
            let prompt = tokens(seed, count);
            let steps: Vec<_> = prompt.chunks(1).collect();
            let stepped = oracle.run(&steps)?;
            let whole = oracle.run(&[&prompt])?;

            let mut cache = ours.new_cache(512);
            let prefill = feed(&ours, &mut cache, SeqId(1), &prompt, &[]).logits;
            for (row, theirs) in stepped.iter().enumerate() {
                worst = worst.max(difference(prefill.row(row), theirs));
                spread = spread.max(theirs.iter().fold(0.0, |m, x| m.max(x.abs())));
                let one = feed(&ours, &mut cache, SeqId(2), steps[row], &[]).logits;
                worst = worst.max(difference(one.row(0), theirs));
            }
            worst = worst.max(difference(prefill.row(prefill.rows() - 1), &whole[0]));
        }
        println!("{name}: max |difference| of logits {worst:e}, largest logit {spread}");
        assert!(worst < TOLERANCE, "{name}: {worst:e}");
        assert!(spread > 1.0, "{name}: logits of {spread} compare nothing");
    }
    Ok(())
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |m, (a, b)| m.max((a - b).abs()))
}

/// The parity above notices a rope without the scaling.
#[test]
fn llama3_rope_is_not_the_plain_one() -> anyhow::Result<()> {
    let (_, scaled) = fixtures().swap_remove(2);
    let oracle = Oracle::of(&scaled)?;
    let plain = llama(
        &Fixture {
            rope: Rope::Default,
            ..scaled
        },
        "f32",
        1,
    );
    let prompt = tokens(5, 100);
    let theirs = oracle.run(&[&prompt])?;
    let logits = feed(&plain, &mut plain.new_cache(128), SeqId(1), &prompt, &[]).logits;
    assert!(difference(logits.row(99), &theirs[0]) > 100.0 * TOLERANCE);
    Ok(())
}

/// GGUF's interleaved rows of queries and keys come out as the same network.
#[test]
fn gguf_gives_the_bits_of_safetensors() -> anyhow::Result<()> {
    for (name, fixture) in fixtures() {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("model.gguf");
        fixture.write_gguf(&path, Quant::F32)?;
        let (a, b) = (open(&path, "as-stored", 1), llama(&fixture, "as-stored", 1));
        let prompt = tokens(6, 40);
        let run = |model: &dyn Target| {
            feed(model, &mut model.new_cache(64), SeqId(1), &prompt, &[]).logits
        };
        let (a, b) = (run(&a), run(&b));
        if name == "llama3 rope" {
            // The factors are stored in f32: the frequencies differ in their last bit.
            assert!(difference(a.as_slice(), b.as_slice()) < TOLERANCE, "{name}");
        } else {
            assert_eq!(bits(a.as_slice()), bits(b.as_slice()), "{name}");
        }
    }
    Ok(())
}
