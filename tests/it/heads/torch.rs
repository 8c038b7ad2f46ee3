//! Heads in the form of the paper's code beside torch, which `scripts/goldens/torch_head.py` loaded them into:
//! the same draft logits for the same rows. `tests/data/torch` has a file a head, with the head's path.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use candle_core::{DType, Device, Tensor};
use eyrie::{
    Matrix, TokenId,
    cache::{KvCache, Txn},
    draft::eagle::{Head, HeadCheckpoint, HeadOptions, TargetFacts},
    error::Result,
    model::{Forward, LoadOptions, Rows, Target},
};
use safetensors::SafeTensors;
use serde_json::Value;

use super::{goldens::matrix, parity::feed};
use crate::{eagle::heads::ids, support::say};

/// Largest difference between a logit here and in torch.
const CLOSE: f32 = 1e-4;
/// Any number that usual taps exist for: their places do not matter, their values are given.
const LAYERS: usize = 8;

/// A target of which heads ask the embeddings of some tokens, and nothing else.
#[derive(Debug)]
struct Embeddings {
    rows: BTreeMap<TokenId, Vec<f32>>,
    facts: TargetFacts,
}

impl Target for Embeddings {
    fn vocab(&self) -> usize {
        self.facts.vocab
    }

    fn context(&self) -> usize {
        4096
    }

    fn layers(&self) -> usize {
        LAYERS
    }

    fn hidden(&self) -> usize {
        self.facts.hidden
    }

    fn new_cache(&self, slots: usize) -> KvCache {
        KvCache::new(LAYERS, self.hidden(), slots)
    }

    fn embed(&self, tokens: &[TokenId]) -> Matrix {
        let rows = tokens.iter().flat_map(|token| &self.rows[token]);
        Matrix::new(self.hidden(), rows.copied().collect())
    }

    fn final_norm(&self, _: &mut Matrix) {
        unreachable!("a head with taps reads no final norm")
    }

    fn head(&self, _: &Matrix) -> Matrix {
        unreachable!("the head has an output head of its own")
    }

    fn forward(&self, _: &Rows, _: &mut Txn<'_>, _: &[usize]) -> Result<Forward> {
        unreachable!("a head does not run its target")
    }
}

/// What torch computed with a head.
struct Golden {
    folder: PathBuf,
    values: HashMap<String, Tensor>,
}

impl Golden {
    fn read(path: &Path) -> Self {
        let bytes = fs::read(path).expect("the file");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
        let about = header.metadata().as_ref().expect("what it is of");
        Self {
            folder: Path::new(env!("CARGO_MANIFEST_DIR")).join(&about["head"]),
            values: candle_core::safetensors::load(path, &Device::Cpu).expect("tensors"),
        }
    }

    fn ids(&self, name: &str) -> Vec<TokenId> {
        let ids = self.values[name].to_dtype(DType::U32);
        ids.and_then(|ids| ids.to_vec1()).expect("tokens")
    }

    fn head(&self) -> Head {
        let text = fs::read_to_string(self.folder.join("config.json")).expect("config.json");
        let config: Value = serde_json::from_str(&text).expect("JSON");
        let size = |key: &str| usize::try_from(config[key].as_u64().expect(key)).expect(key);
        let facts = TargetFacts {
            hidden: size("hidden_size"),
            layers: LAYERS,
            vocab: size("vocab_size"),
            tied: false,
        };
        let options = HeadOptions::default();
        let opened = HeadCheckpoint::open(&self.folder, &facts, &options).expect("a head");
        let rows = self.ids("embedding.tokens").into_iter().zip(0..);
        let embedding = matrix(&self.values["embedding.rows"]);
        let rows = rows.map(|(token, row)| (token, embedding.row(row).to_vec()));
        let target = Embeddings {
            rows: rows.collect(),
            facts,
        };
        Head::load(&opened, Arc::new(target), &LoadOptions::default()).expect("it loads")
    }

    /// How far the logits of `head` are from torch's: beyond all bounds if another token is the likeliest.
    fn difference(&self, head: &Head) -> f32 {
        let (columns, ids) = (self.ids("columns"), ids(head.config()));
        let tokens: Vec<_> = columns.iter().map(|column| ids[*column as usize]).collect();
        assert_eq!(tokens, self.ids("columns.tokens"));
        let best = |logits: &[f32]| {
            let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
            ids[best.expect("logits")]
        };
        let mut far = 0.0_f32;
        let compare = |far: &mut f32, logits: &Matrix, name: &str, from: usize| {
            let right = matrix(&self.values[name]);
            for row in 0..logits.rows() {
                let ours = columns
                    .iter()
                    .map(|column| logits.row(row)[*column as usize]);
                for (a, b) in ours.zip(right.row(from + row)) {
                    assert!(a.is_finite(), "{name}");
                    *far = far.max((a - b).abs());
                }
            }
        };
        let mut cache = head.new_cache(32);
        let features = head.fuse(matrix(&self.values["taps"]));
        let fed = feed(head, &mut cache, &self.ids("tokens"), &features);
        compare(&mut far, &fed.logits, "extend.logits", 0);
        let rows = 0..fed.logits.rows();
        let guesses: Vec<_> = rows.clone().map(|row| best(fed.logits.row(row))).collect();
        if guesses != self.ids("extend.best") {
            return f32::INFINITY;
        }
        let (mut guess, mut last) = (guesses[rows.end - 1], fed.hidden.gather([rows.end - 1]));
        for (step, token) in self.ids("steps.tokens").into_iter().enumerate() {
            if token != guess {
                return f32::INFINITY;
            }
            let fed = feed(head, &mut cache, &[token], &last);
            compare(&mut far, &fed.logits, "steps.logits", step);
            (guess, last) = (best(fed.logits.row(0)), fed.hidden);
        }
        far
    }
}

fn goldens() -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch");
    let entries = fs::read_dir(folder).expect("the folder").flatten();
    let paths = entries.map(|entry| entry.path());
    let files = paths.filter(|path| path.extension().is_some_and(|kind| kind == "safetensors"));
    files.map(|path| Golden::read(&path)).collect()
}

#[test]
fn draft_logits_are_torchs() {
    let goldens = goldens();
    assert!(!goldens.is_empty());
    for golden in goldens {
        let name = golden.folder.display();
        let far = golden.difference(&golden.head());
        say(&format!("{name}: logits within {far:.1e} of torch's"));
        assert!(far < CLOSE, "{name}: {far}");
    }
}

/// The comparison can fail: every tensor of the small head, changed a little, is noticed.
#[test]
fn a_changed_tensor_is_noticed() {
    let goldens = goldens();
    let golden = goldens
        .iter()
        .find(|golden| golden.folder.ends_with("tests/data/torch/small-head"))
        .expect("the small head");
    let head = golden.head();
    for (name, shape, _) in head.config().tensors() {
        let dir = tempfile::tempdir().expect("a folder");
        for file in ["config.json", "model.safetensors"] {
            fs::copy(golden.folder.join(file), dir.path().join(file)).expect("a copy");
        }
        let path = dir.path().join("model.safetensors");
        let stored = name.replace("layers.0.", "midlayer.");
        let mut bytes = fs::read(&path).expect("the tensors");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
        let (from, to) = header.info(&stored).expect("the tensor").data_offsets;
        let (len, _) = bytes.split_first_chunk::<8>().expect("a length");
        let begin = 8 + usize::try_from(u64::from_le_bytes(*len)).expect("small");
        // The rows in another order; a norm's values likewise.
        let row = match shape[..] {
            [_, width] => 2 * width,
            _ => 2,
        };
        bytes[begin + from..begin + to].rotate_left(row);
        fs::write(&path, bytes).expect("written");
        let changed = Golden {
            folder: dir.path().to_owned(),
            values: golden.values.clone(),
        };
        let far = changed.difference(&changed.head());
        assert!(far > CLOSE, "{name} does not count");
    }
}
