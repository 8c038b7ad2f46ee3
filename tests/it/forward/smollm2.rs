//! SmolLM2-135M-Instruct as stored: `Q4_1` layers, `Q8_0` embedding.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

use crate::support::smollm2;
use candle_core::{Device, Tensor, quantized::gguf_file::Content};
use candle_transformers::models::quantized_llama::ModelWeights;
use eyrie::{
    Matrix, SeqId, TokenId,
    model::{Llama, Target, load::gguf::Header},
};

use super::{argmax, feed, open};

/// "Plants use energy from sunlight to turn carbon dioxide and water into sugar and oxygen. This
/// process is called photosynthesis, and it takes place in the green leaves of most of the plants
/// on land."
const SENTENCE: [TokenId; 38] = [
    34246, 722, 1439, 429, 8118, 288, 1607, 3118, 7600, 284, 913, 618, 3982, 284, 4983, 30, 669,
    980, 314, 1217, 19173, 28, 284, 357, 2933, 1379, 281, 260, 2654, 3711, 282, 768, 282, 260,
    2109, 335, 1666, 30,
];

/// "The capital of France is", and " Paris".
const CAPITAL: ([TokenId; 5], usize) = ([504, 3575, 282, 4649, 314], 7042);

fn nll(model: &Llama, tokens: &[TokenId]) -> f64 {
    let logits = feed(model, &mut model.new_cache(64), SeqId(1), tokens, &[]).logits;
    mean_nll(&logits, tokens)
}

/// Mean negative log-likelihood of the tokens after the first, in nats.
fn mean_nll(logits: &Matrix, tokens: &[TokenId]) -> f64 {
    let one = |(row, token): (usize, &TokenId)| {
        let row = logits.row(row);
        let sum: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
        sum.ln() - f64::from(row[*token as usize])
    };
    let (count, all) = tokens[1..]
        .iter()
        .enumerate()
        .map(one)
        .fold((0.0, 0.0), |(count, all), one| (count + 1.0, all + one));
    all / count
}

#[test]
fn the_capital_of_france_is_paris() {
    let Some(path) = smollm2() else { return };
    let model = open(&path, "as-stored", 2);
    println!("{}", model.describe());
    let (prompt, paris) = CAPITAL;
    let logits = feed(&model, &mut model.new_cache(16), SeqId(1), &prompt, &[]).logits;
    assert_eq!(argmax(logits.row(4)), paris);
}

#[test]
fn the_wrong_rope_layout_shows_in_the_likelihood() -> anyhow::Result<()> {
    let Some(path) = smollm2() else {
        return Ok(());
    };
    let right = nll(&open(&path, "as-stored", 2), &SENTENCE);
    let dir = tempfile::tempdir()?;
    let wrong_path = dir.path().join("interleaved.gguf");
    interleave(&path, &wrong_path)?;
    let wrong = nll(&open(&wrong_path, "as-stored", 2), &SENTENCE);
    println!("mean NLL {right:.3}; with interleaved rows under half-split rope {wrong:.3}");
    assert!((right - 2.419).abs() < 0.01, "{right}");
    assert!(wrong > right + 0.3, "{wrong} after {right}");
    Ok(())
}

/// Copies a GGUF file with its query and key rows moved so that the loader's reordering gives back
/// the file's own, interleaved order.
fn interleave(from: &Path, to: &Path) -> anyhow::Result<()> {
    const HEAD: usize = 64;
    let length = std::fs::metadata(from)?.len();
    let header = Header::read(&mut io::BufReader::new(File::open(from)?), length)?;
    let mut bytes = Vec::new();
    File::open(from)?.read_to_end(&mut bytes)?;
    let mut file = File::create(to)?;
    file.write_all(&bytes)?;
    let turned = |name: &str| name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight");
    for tensor in header.tensors.iter().filter(|t| turned(&t.name)) {
        let at = header.data + tensor.begin;
        let start = usize::try_from(at)?;
        let rows = &bytes[start..start + tensor.bytes];
        let row = tensor.bytes / tensor.shape[0];
        let mut moved = vec![0; tensor.bytes];
        for (i, source) in rows.chunks_exact(row).enumerate() {
            let (head, i) = (i / HEAD * HEAD, i % HEAD);
            let place = head + i % (HEAD / 2) * 2 + i / (HEAD / 2);
            moved[place * row..][..row].copy_from_slice(source);
        }
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&moved)?;
    }
    Ok(())
}

/// candle's own reader of the file, and its interleaved rope. Its activations are rounded to 8
/// bits, so single logits differ by up to 1 where the likelihood hardly does.
#[test]
fn the_likelihood_is_that_of_candles_quantised_llama() -> anyhow::Result<()> {
    let Some(path) = smollm2() else {
        return Ok(());
    };
    let mut file = io::BufReader::new(File::open(&path)?);
    let content = Content::read(&mut file)?;
    let mut oracle = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;
    let mut theirs = Vec::new();
    for (position, token) in SENTENCE.iter().enumerate() {
        let input = Tensor::new(&[*token], &Device::Cpu)?.unsqueeze(0)?;
        let logits = oracle.forward(&input, position)?.flatten_all()?;
        theirs.extend(logits.to_vec1::<f32>()?);
    }
    let theirs = mean_nll(&Matrix::new(49_152, theirs), &SENTENCE);
    let ours = nll(&open(&path, "as-stored", 2), &SENTENCE);
    println!("mean NLL {ours:.3}; candle's quantised llama {theirs:.3}");
    assert!((ours - theirs).abs() < 0.05, "{ours} and {theirs}");
    Ok(())
}
