//! The heads under `tests/data/heads`, which public tools wrote, with their right values.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use candle_core::{DType, Device, Tensor, safetensors};
use eyrie::{
    Matrix, TokenId,
    cache::{KvCache, Txn},
    draft::eagle::{Head, HeadCheckpoint, HeadConfig, HeadOptions, NormOutput, TargetFacts},
    error::Result,
    model::{Forward, LoadOptions, Rows, Target},
};
use serde_json::Value;
use tempfile::TempDir;

/// Heads whose files leave something open, and the answer.
const ASKED: [(&str, HeadOptions); 2] = [
    ("eagle3-specforge-old-norm-output", OLD),
    ("eagle3-specforge-no-head-norm", OLD),
];

const OLD: HeadOptions = HeadOptions {
    taps_convention: None,
    theta: None,
    context: None,
    norm_output: Some(NormOutput::Head),
};

const LAYERS: usize = 8;

/// One head, with the target that it is for and its right values.
pub(crate) struct Golden {
    pub(crate) name: String,
    /// `FORMAT, SOURCE`.
    pub(crate) format: String,
    /// The tokens t_0 to t_9, and the streams of the first nine and more, `[rows, taps, width]`.
    pub(crate) tokens: Vec<TokenId>,
    streams: Tensor,
    values: BTreeMap<String, Tensor>,
    target: Arc<dyn Target>,
    path: PathBuf,
    _dir: TempDir,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/heads")
}

fn index() -> Value {
    let text = fs::read_to_string(root().join("index.json")).expect("the index");
    serde_json::from_str(&text).expect("JSON")
}

/// The names of all heads, which are the folders there are but for those of targets.
pub(crate) fn names() -> Vec<String> {
    let index = index();
    let heads = index["heads"].as_object().expect("heads");
    let folders = fs::read_dir(root()).expect("the folder").flatten();
    let mut folders: Vec<String> = folders
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with("target-"))
        .collect();
    folders.sort_unstable();
    let mut names: Vec<String> = heads.keys().cloned().collect();
    names.sort_unstable();
    assert_eq!(
        folders, names,
        "folders that are not in index.json, or the other way round"
    );
    names
}

impl Golden {
    /// The files of the head `name`, as the public tool left them.
    pub(crate) fn read(name: &str) -> Self {
        let (root, index) = (root(), index());
        let entry = &index["heads"][name];
        let dir = TempDir::new().expect("a temporary folder");
        for (file, stored) in entry["files"].as_object().expect("files") {
            let at = root.join(stored["at"].as_str().expect("a path"));
            fs::copy(at, dir.path().join(file)).expect("a file of the head");
        }
        let values = read(&dir.path().join("golden.safetensors"));
        fs::remove_file(dir.path().join("golden.safetensors")).expect("it was there");
        let folder = entry["target"].as_str().expect("the folder of the target");
        let shown = read(&root.join(folder).join("target.safetensors"));
        let gguf = dir.path().join("head.gguf");
        let word = |key: &str| entry[key].as_str().expect("a word").to_owned();
        Self {
            name: name.to_owned(),
            format: format!("{}, {}", word("format"), word("source")),
            tokens: ids(&shown["tokens"]),
            streams: shown["streams"].clone(),
            values: values.into_iter().collect(),
            target: Arc::new(Stub::of(&shown)),
            path: if gguf.exists() {
                gguf
            } else {
                dir.path().to_owned()
            },
            _dir: dir,
        }
    }

    /// What a user would have to say.
    pub(crate) fn options(&self) -> HeadOptions {
        let asked = ASKED.iter().find(|(name, _)| *name == self.name);
        asked.map_or_else(HeadOptions::default, |(_, options)| *options)
    }

    /// The head, opened and loaded.
    pub(crate) fn head(&self) -> Head {
        self.head_with(&self.options())
    }

    pub(crate) fn head_with(&self, options: &HeadOptions) -> Head {
        let opened = self.open(options);
        let checkpoint = opened.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let options = LoadOptions {
            threads: Some(1),
            ..LoadOptions::default()
        };
        let head = Head::load(&checkpoint, Arc::clone(&self.target), &options);
        head.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// The head with its tensors, made to compute something else.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut HeadConfig)) -> Head {
        let checkpoint = self.open(&self.options()).expect("a head");
        let mut config = checkpoint.config().clone();
        change(&mut config);
        let options = LoadOptions {
            threads: Some(1),
            ..LoadOptions::default()
        };
        let mut source = |name: &str| checkpoint.stored(name);
        let head = Head::new(config, &mut source, Arc::clone(&self.target), &options);
        head.expect("the same tensors")
    }

    pub(crate) fn open(
        &self,
        options: &HeadOptions,
    ) -> Result<HeadCheckpoint, eyrie::model::load::LoadError> {
        let target = &self.target;
        let facts = TargetFacts {
            hidden: target.hidden(),
            layers: target.layers(),
            vocab: target.vocab(),
            tied: false,
        };
        HeadCheckpoint::open(&self.path, &facts, options)
    }

    /// What the target shows `head` of `rows` tokens from `from` on.
    pub(crate) fn shown(&self, head: &Head, from: usize, rows: usize) -> Matrix {
        let rows = self.streams.narrow(0, from, rows).expect("rows");
        let tap = |tap: &usize| rows.narrow(1, *tap, 1)?.squeeze(1);
        let taps: Vec<Tensor> = head.taps().iter().flat_map(tap).collect();
        assert_eq!(taps.len(), head.taps().len());
        matrix(&Tensor::cat(&taps, 1).expect("taps"))
    }

    /// A right value, `[rows, columns]`.
    pub(crate) fn value(&self, name: &str) -> Matrix {
        matrix(&self.values[name])
    }

    /// The tokens of some rows.
    pub(crate) fn fed(&self, name: &str) -> Vec<TokenId> {
        ids(&self.values[name])
    }
}

/// The part of a head's target that heads use: no head runs it.
#[derive(Debug)]
struct Stub {
    embedding: Matrix,
    norm: Vec<f64>,
    lm_head: Matrix,
}

impl Stub {
    fn of(shown: &std::collections::HashMap<String, Tensor>) -> Self {
        let norm = shown["model.norm.weight"].to_dtype(DType::F64);
        Self {
            embedding: matrix(&shown["model.embed_tokens.weight"]),
            norm: norm.and_then(|norm| norm.to_vec1()).expect("a norm"),
            lm_head: matrix(&shown["lm_head.weight"]),
        }
    }
}

impl Target for Stub {
    fn vocab(&self) -> usize {
        self.embedding.rows()
    }

    fn context(&self) -> usize {
        4096
    }

    fn layers(&self) -> usize {
        LAYERS
    }

    fn hidden(&self) -> usize {
        self.embedding.cols()
    }

    fn new_cache(&self, slots: usize) -> KvCache {
        KvCache::new(LAYERS, self.hidden(), slots)
    }

    fn embed(&self, tokens: &[TokenId]) -> Matrix {
        self.embedding
            .gather(tokens.iter().map(|token| *token as usize))
    }

    fn final_norm(&self, x: &mut Matrix) {
        for row in 0..x.rows() {
            let values = x.row_mut(row).iter_mut().zip(&self.norm);
            let squares = values.map(|(x, _)| f64::from(*x).powi(2)).sum::<f64>();
            let width = f64::from(u32::try_from(self.norm.len()).expect("a width"));
            let scale = 1.0 / (squares / width + 1e-5).sqrt();
            for (x, weight) in x.row_mut(row).iter_mut().zip(&self.norm) {
                *x = single(f64::from(*x) * scale * weight);
            }
        }
    }

    fn head(&self, normed: &Matrix) -> Matrix {
        let dot = |row: usize, id: usize| {
            let pairs = normed.row(row).iter().zip(self.lm_head.row(id));
            single(pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum())
        };
        let rows = (0..normed.rows()).flat_map(|row| (0..self.vocab()).map(move |id| (row, id)));
        Matrix::new(self.vocab(), rows.map(|(row, id)| dot(row, id)).collect())
    }

    fn forward(&self, _: &Rows, _: &mut Txn<'_>, _: &[usize]) -> Result<Forward> {
        unreachable!("a head does not run its target")
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
fn single(x: f64) -> f32 {
    x as f32
}

fn read(path: &Path) -> std::collections::HashMap<String, Tensor> {
    safetensors::load(path, &Device::Cpu).expect("a safetensors file")
}

pub(crate) fn matrix(tensor: &Tensor) -> Matrix {
    let (_, cols) = tensor.dims2().expect("a matrix");
    let values = tensor.to_dtype(DType::F32).and_then(|t| t.flatten_all());
    Matrix::new(cols, values.and_then(|t| t.to_vec1()).expect("numbers"))
}

fn ids(tensor: &Tensor) -> Vec<TokenId> {
    let ids = tensor.to_dtype(DType::U32).and_then(|t| t.to_vec1());
    ids.expect("tokens")
}
