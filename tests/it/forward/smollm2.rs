//! SmolLM2-135M-Instruct as stored: `Q4_1` layers, `Q8_0` embedding.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use eyrie::{
    SeqId, TokenId,
    model::{Llama, Target, load::gguf::Header},
};

use super::{argmax, feed, open};

/// "Water is made of two elements, hydrogen and oxygen. When it is cooled down below zero degrees,
/// it freezes and becomes ice; when it is heated enough, it boils and becomes steam."
const SENTENCE: [TokenId; 38] = [
    12615, 314, 1135, 282, 827, 2728, 28, 7457, 284, 4983, 30, 1550, 357, 314, 21759, 1187, 2441,
    6708, 5027, 28, 357, 43145, 284, 3207, 3908, 43, 645, 357, 314, 12150, 2001, 28, 357, 36411,
    284, 3207, 9403, 30,
];

/// "The capital of France is", and " Paris".
const CAPITAL: ([TokenId; 5], usize) = ([504, 3575, 282, 4649, 314], 7042);

fn checkpoint() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.exists() {
        println!("skipped: {} is not there", path.display());
        return None;
    }
    Some(path)
}

/// Mean negative log-likelihood of the tokens after the first, in nats.
fn nll(model: &Llama, tokens: &[TokenId]) -> f64 {
    let logits = feed(model, &mut model.new_cache(64), SeqId(1), tokens, &[]).logits;
    let one = |(row, token): (usize, &TokenId)| {
        let row = logits.row(row);
        let sum: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
        sum.ln() - f64::from(row[*token as usize])
    };
    let all: f64 = tokens[1..].iter().enumerate().map(one).sum();
    all / (tokens.len() - 1) as f64
}

#[test]
fn the_capital_of_france_is_paris() {
    let Some(path) = checkpoint() else { return };
    let model = open(&path, "as-stored", 2);
    println!("{}", model.describe());
    let (prompt, paris) = CAPITAL;
    let logits = feed(&model, &mut model.new_cache(16), SeqId(1), &prompt, &[]).logits;
    assert_eq!(argmax(logits.row(4)), paris);
}

#[test]
fn the_wrong_rope_layout_shows_in_the_likelihood() -> anyhow::Result<()> {
    let Some(path) = checkpoint() else {
        return Ok(());
    };
    let right = nll(&open(&path, "as-stored", 2), &SENTENCE);
    let dir = tempfile::tempdir()?;
    let wrong_path = dir.path().join("interleaved.gguf");
    interleave(&path, &wrong_path)?;
    let wrong = nll(&open(&wrong_path, "as-stored", 2), &SENTENCE);
    println!("mean NLL {right:.3}; with interleaved rows under half-split rope {wrong:.3}");
    assert!(right < 2.0, "{right}");
    assert!(wrong > right + 0.4, "{wrong} after {right}");
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
