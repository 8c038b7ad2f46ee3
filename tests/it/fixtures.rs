//! The fixtures are what they say, by candle-transformers' llama.

use std::{collections::BTreeSet, fs, path::Path};

use candle_core::{DType, Device, Tensor, quantized::gguf_file};
use candle_nn::VarBuilder;
use candle_transformers::models::{
    llama::{Cache, Llama, LlamaConfig},
    quantized_llama::ModelWeights,
};
use eyrie_fixtures::{Fixture, Quant, table, td, tokenizer, tt};

struct Oracle {
    model: Llama,
    config: candle_transformers::models::llama::Config,
}

impl Oracle {
    fn open(dir: &Path) -> Self {
        let config = fs::read(dir.join("config.json")).unwrap();
        let config: LlamaConfig = serde_json::from_slice(&config).unwrap();
        let config = config.into_config(false);
        let weights = fs::read(dir.join("model.safetensors")).unwrap();
        let vb = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu).unwrap();
        let model = Llama::load(vb, &config).unwrap();
        Self { model, config }
    }

    fn of(fixture: &Fixture) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fixture.write_dir(dir.path()).unwrap();
        Self::open(dir.path())
    }

    /// Logits after the last of `tokens`.
    fn logits(&self, tokens: &[u32]) -> Vec<f32> {
        let mut cache = Cache::new(false, DType::F32, &self.config, &Device::Cpu).unwrap();
        let input = Tensor::new(tokens, &Device::Cpu)
            .unwrap()
            .unsqueeze(0)
            .unwrap();
        let logits = self.model.forward(&input, 0, &mut cache).unwrap();
        logits.squeeze(0).unwrap().to_vec1().unwrap()
    }
}

fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    u32::try_from(best.unwrap().0).unwrap()
}

#[test]
fn random_fixtures_have_a_useful_spread_and_no_constant_greedy_output() {
    let tied = Fixture { tied: true, ..tt() };
    for (name, fixture) in [("tt", tt()), ("td", td()), ("tied tt", tied)] {
        let oracle = Oracle::of(&fixture);
        let mut seen = BTreeSet::new();
        let (mut sum, mut squares, mut n) = (0.0, 0.0, 0.0);
        let mut contextual = false;
        for start in [1, 20, 50] {
            let mut tokens: Vec<u32> = vec![start, 7, 33];
            for _ in 0..48 {
                let logits = oracle.logits(&tokens);
                for x in &logits {
                    let x = f64::from(*x);
                    (sum, squares, n) = (sum + x, squares + x * x, n + 1.0);
                }
                tokens.push(argmax(&logits));
            }
            seen.extend(tokens[3..].iter().copied());
            let last = tokens[tokens.len() - 2];
            let here = *tokens.last().unwrap();
            contextual |= tokens[3..]
                .windows(2)
                .any(|pair| pair[0] == last && pair[1] != here);
        }
        let mean = sum / n;
        let std = (squares / n - mean * mean).sqrt();
        assert!((1.5..2.5).contains(&std), "{name}: {std}");
        assert!(seen.len() >= 20, "{name}: greedy tokens {seen:?}");
        assert!(
            contextual,
            "{name}: the next token depends on the last alone"
        );
    }
}

#[test]
fn a_table_fixture_gives_the_logits_of_its_table_after_any_prefix() {
    for vocab in [4_u16, 6, 10, 64] {
        let entry = |i: u16, v: u16| f32::from((i * 31 + v * 17) % 41) * 0.37 - 5.0;
        let row = |i| {
            (0..vocab)
                .map(|v| if (i + v) % 7 == 0 { -1e4 } else { entry(i, v) })
                .collect()
        };
        let m: Vec<Vec<f32>> = (0..vocab).map(row).collect();
        let oracle = Oracle::of(&table(&m));
        let mut worst = 0.0_f32;
        for i in 0..u32::from(vocab) {
            let expected = &m[i as usize];
            for prefix in [&[][..], &[0, 3, 1], &[2, 2, 2, 2]] {
                let tokens = [prefix, &[i]].concat();
                for (got, want) in oracle.logits(&tokens).iter().zip(expected) {
                    worst = worst.max((got - want).abs() / want.abs().max(1e-3));
                }
            }
        }
        assert!(
            worst <= 4e-7,
            "vocabulary {vocab}: relative error {worst:.2e}"
        );
    }
}

/// candle turns neighbouring rows of a GGUF file, and halves of a safetensors one.
#[test]
fn gguf_fixtures_compute_what_safetensors_ones_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tt.gguf");
    tt().write_gguf(&path, Quant::F32).unwrap();
    let mut file = fs::File::open(&path).unwrap();
    let content = gguf_file::Content::read(&mut file).unwrap();
    let mut gguf = ModelWeights::from_gguf(content, &mut file, &Device::Cpu).unwrap();
    let tokens: Vec<u32> = (0..24).map(|i| i * 29 % 64).collect();
    let input = Tensor::new(&tokens[..], &Device::Cpu).unwrap();
    let logits = gguf.forward(&input.unsqueeze(0).unwrap(), 0).unwrap();
    let logits: Vec<f32> = logits.squeeze(0).unwrap().to_vec1().unwrap();
    let expected = Oracle::of(&tt()).logits(&tokens);
    let difference = logits
        .iter()
        .zip(&expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(difference < 1e-4, "{difference}");
}

#[test]
fn the_tokenizer_loads_and_what_it_can_spell_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture {
        tokenizer: true,
        ..tt()
    };
    fixture.write_dir(dir.path()).unwrap();
    let tokenizer = tokenizers::Tokenizer::from_file(dir.path().join("tokenizer.json")).unwrap();
    assert_eq!(tokenizer.get_vocab_size(true), tokenizer::TOKENS);
    for text in [
        "the cat sat, in 1984.",
        "a man (tan) and then\nthe end!",
        "x",
    ] {
        let ids = tokenizer.encode(text, false).unwrap().get_ids().to_vec();
        assert!(!ids.contains(&tokenizer::UNK), "{text}: {ids:?}");
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }
    let ids = tokenizer
        .encode("<bos>a: the<eos>", false)
        .unwrap()
        .get_ids()
        .to_vec();
    assert_eq!(
        (ids[0], *ids.last().unwrap()),
        (tokenizer::BOS, tokenizer::EOS)
    );
    assert_eq!(
        tokenizer.encode("Z", false).unwrap().get_ids(),
        [tokenizer::UNK]
    );
    let longer = tokenizer::json(&["<extra>"]).to_string();
    let longer = tokenizers::Tokenizer::from_bytes(longer).unwrap();
    assert_eq!(longer.token_to_id("<extra>"), Some(60));
}
