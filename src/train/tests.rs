use std::{path::Path, sync::Arc};

use eyrie_fixtures::{Fixture, tt};
use tempfile::TempDir;

use super::{
    Answering, Data, Drawn, Facts, HeadType, Prompt, Recipe, Sequence, Trainer, Writer,
    batch::Batch,
    default_taps, distill,
    frozen::Frozen,
    mat::Mat,
    net::{Form, Gradients, Part, Weights},
    random::Random,
    unroll::Unroll,
};
use crate::{
    Matrix, SeqId, TokenId,
    cache::Txn,
    draft::eagle::{Head, HeadCheckpoint, HeadOptions, TargetFacts, Version},
    error::Result,
    model::{
        Dtype, Linear, Llama, LoadOptions, Rows, Target, Wanted,
        config::{RopeConfig, RopeScaling},
        load::{Checkpoint, Stored, StoredType},
    },
};

fn tiny(version: Version) -> Form {
    let rope = RopeConfig {
        theta: 100.0,
        scaling: RopeScaling::None,
    };
    Form {
        version,
        hidden: 16,
        taps: if version == Version::Eagle3 { 3 } else { 1 },
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        intermediate: 24,
        eps: 1e-5,
        rope: rope.rotary(4),
    }
}

fn random_weights(form: &Form, random: &mut Random) -> Result<Weights> {
    Weights::new(form, |part| {
        let (rows, cols) = form.shape(part);
        let mut values = random.values(rows * cols, if rows == 1 { 0.2 } else { 0.4 });
        if rows == 1 {
            values.iter_mut().for_each(|x| *x += 1.0);
        }
        Ok(values)
    })
}

fn random_frozen(form: &Form, random: &mut Random) -> Result<Frozen> {
    let (vocab, ids): (usize, Vec<TokenId>) = (40, (0..20).map(|i| 2 * i).collect());
    let values = random.values(vocab * form.hidden, 1.0);
    let stored = Stored {
        name: "embed".to_owned(),
        dtype: StoredType::F32,
        shape: vec![vocab, form.hidden],
        bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    };
    let lm_head = random.values(ids.len() * form.hidden, 0.5);
    Ok(Frozen {
        embed: Linear::from_stored(stored, Dtype::AsStored)?,
        lm_head: Mat::new(form.hidden, lm_head)?,
        ids,
    })
}

fn random_sequence(form: &Form, tokens: &[TokenId], random: &mut Random) -> Sequence {
    let rows = tokens.len() - 1;
    Sequence {
        prompt_tokens: 3,
        temperature: 0.0,
        tokens: tokens.to_vec(),
        taps: Matrix::new(
            form.taps * form.hidden,
            random.values(rows * form.taps * form.hidden, 1.0),
        ),
        finals: Matrix::new(form.hidden, random.values(rows * form.hidden, 1.0)),
    }
}

/// `weights` moved along `direction` by `far`.
fn moved(weights: &Weights, part: Part, direction: &[f32], far: f32) -> Result<Weights> {
    let mut weights = weights.clone();
    let (old, cols) = (weights.get(part).clone(), weights.get(part).cols());
    let view = old.view();
    let values = view.iter().zip(direction).map(|(x, d)| x + far * d);
    weights.set(part, Mat::new(cols, values.collect())?);
    Ok(weights)
}

/// Along the gradient itself and along random directions, in every matrix and norm, for one step and for
/// three: the slope of the loss is what the gradient says.
fn gradients_are_slopes(version: Version) -> Result<()> {
    let mut random = Random::new(7);
    let form = tiny(version);
    let weights = random_weights(&form, &mut random)?;
    let frozen = random_frozen(&form, &mut random)?;
    // 7 and 11 have no row in the head.
    let sequences = [
        (&[1, 2, 30, 4, 6, 7, 8, 10, 12, 2, 4][..], 3),
        (&[5, 2, 4, 11, 16, 18, 2][..], 3),
        (&[9, 6, 4, 2, 8][..], 3),
    ];
    let sequences =
        sequences.map(|(tokens, from)| (random_sequence(&form, tokens, &mut random), from));
    let scales = [1.0, 2.0, 0.5];
    for steps in [1, 3] {
        let batch = Batch::new(&sequences, &scales[..form.taps], &form, &frozen, steps)?;
        let loss = |weights: &Weights| -> Result<(f64, Gradients)> {
            let unroll = Unroll {
                form: &form,
                weights,
                frozen: &frozen,
                batch: &batch,
            };
            let losses = unroll.losses(steps, 0.8)?;
            Ok((losses.total, losses.gradients))
        };
        let (_, gradients) = loss(&weights)?;
        for part in Part::ALL {
            let gradient = gradients.get(part);
            if form.shape(part).0 == 0 {
                continue;
            }
            let mut directions = vec![gradient.to_vec()];
            for _ in 0..3 {
                directions.push(random.values(gradient.len(), 1.0));
            }
            let size = length(gradient);
            assert!(size > 1e-4, "{}: no gradient", part.name());
            for mut direction in directions {
                let whole = length(&direction);
                direction.iter_mut().for_each(|d| *d /= whole);
                let far = 0.002;
                let (up, _) = loss(&moved(&weights, part, &direction, far)?)?;
                let (down, _) = loss(&moved(&weights, part, &direction, -far)?)?;
                let slope = (up - down) / (2.0 * f64::from(far));
                let said: f32 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
                let off = (slope - f64::from(said)).abs();
                let bound = 0.01 * f64::from(size).max(0.02);
                assert!(
                    off < bound,
                    "{} at {steps} steps: slope {slope}, gradient {said}, size {size}",
                    part.name()
                );
            }
        }
    }
    Ok(())
}

#[test]
fn eagle3_gradients_are_slopes() -> Result<()> {
    gradients_are_slopes(Version::Eagle3)
}

#[test]
fn eagle1_gradients_are_slopes() -> Result<()> {
    gradients_are_slopes(Version::Eagle1)
}

fn length(values: &[f32]) -> f32 {
    values.iter().map(|x| x * x).sum::<f32>().sqrt()
}

/// Data of the random target, as distill makes them.
fn distilled(dir: &Path, checkpoint: &Checkpoint, target: &dyn Target) -> Result<Data> {
    let taps = default_taps(checkpoint.config())?;
    let drawn = Drawn {
        dtype: "as-stored".to_owned(),
        seed: 5,
        temperatures: vec![0.0, 0.7],
        max_tokens: 24,
    };
    let facts = Facts::of(checkpoint, taps.clone(), drawn)?;
    let mut writer = Writer::open(dir, facts)?;
    let prompts: Vec<Prompt> = (0..24)
        .map(|index| Prompt {
            index: index as usize,
            tokens: vec![1, 2, index + 3, (7 * index) % 60],
        })
        .collect();
    let how = Answering {
        taps,
        max_tokens: 24,
        temperatures: vec![0.0, 0.7],
        batch: 5,
        seed: 5,
        eos: Vec::new(),
        valid: 64,
    };
    distill(target, &prompts, &how, &mut writer, &mut |_| true)?;
    Ok(writer.data())
}

/// What training computes at step k on a row is what drafting computes at depth k from it: the same
/// features, keys and positions, by way of the exported file and its loader.
fn the_unroll_is_what_drafting_does(version: Version) -> Result<()> {
    let dir = TempDir::new().expect("a temporary folder");
    let at = |name: &str| dir.path().join(name);
    Fixture::write_dir(&tt(), &at("tt")).expect("the fixture is written");
    let checkpoint = Checkpoint::open(&at("tt"))?;
    let target: Arc<dyn Target> = Arc::new(Llama::load(&checkpoint, &LoadOptions::default())?);
    let data = distilled(&at("data"), &checkpoint, &*target)?;
    let eagle3 = version == Version::Eagle3;
    let recipe = Recipe {
        head: version,
        draft_vocab: if eagle3 { 40 } else { 64 },
        epochs: [1, 1],
        rows: 60,
        held_out: 2,
        ..Recipe::default()
    };
    let mut trainer = Trainer::new(&checkpoint, data, recipe, &[])?;
    for _ in 0..4 {
        trainer.step()?;
    }
    trainer.export(&checkpoint, HeadType::F32, &at("head"))?;
    let facts = TargetFacts::from(checkpoint.config());
    let opened = HeadCheckpoint::open(&at("head"), &facts, &HeadOptions::default())?;
    assert!(
        opened.config().warnings.is_empty(),
        "{:?}",
        opened.config().warnings
    );
    assert_eq!(opened.config().version, version);
    let head = Head::load(&opened, Arc::clone(&target), &LoadOptions::default())?;

    let steps = 4;
    let entries = trainer.data.entries();
    let sequences: Vec<_> = [&entries[3], &entries[8]]
        .iter()
        .map(|entry| Ok((trainer.data.sequence(entry)?, entry.prompt_tokens)))
        .collect::<Result<_>>()?;
    let batch = Batch::new(
        &sequences,
        &trainer.scales,
        &trainer.form,
        &trainer.frozen,
        steps,
    )?;
    let unroll: Unroll<'_> = trainer.unroll(&batch);
    let pass = unroll.forward(steps)?;
    let (mut far, mut largest) = (0.0_f32, 0.0_f32);
    let mut compared = 0;
    for ((sequence, _), span) in sequences.iter().zip(&batch.spans) {
        let first = batch.positions[batch.rows[span.queries.start]];
        for query in span.queries.clone() {
            let row = first + query - span.queries.start;
            let features = if eagle3 {
                head.fuse(sequence.taps.gather(0..=row))
            } else {
                sequence.finals.gather(0..=row)
            };
            let mut cache = head.new_cache(64);
            let mut output = fed(&head, &mut cache, &sequence.tokens[1..row + 2], &features)?;
            for step in 0..steps {
                let ours = pass.output(step).gather([query])?;
                // Streams grow with training: they are compared by the size of their row.
                let theirs = output.as_slice();
                let size = theirs.iter().fold(1.0_f32, |size, x| size.max(x.abs()));
                for (a, b) in ours.view().iter().zip(theirs) {
                    far = far.max((a - b).abs() / size);
                    largest = largest.max(size);
                }
                compared += 1;
                let Some(token) = sequence.tokens.get(row + 2 + step) else {
                    break;
                };
                let feature = head.fed_back(output);
                output = fed(&head, &mut cache, &[*token], &feature)?;
            }
        }
    }
    assert!(compared > 100, "{compared}");
    assert!(far < 2e-5, "{far} of {largest} off");
    Ok(())
}

#[test]
fn the_unroll_of_eagle3_is_what_drafting_does() -> Result<()> {
    the_unroll_is_what_drafting_does(Version::Eagle3)
}

#[test]
fn the_unroll_of_eagle1_is_what_drafting_does() -> Result<()> {
    the_unroll_is_what_drafting_does(Version::Eagle1)
}

/// Feeds rows; the output of the last.
fn fed(
    head: &Head,
    cache: &mut crate::cache::KvCache,
    tokens: &[TokenId],
    features: &Matrix,
) -> Result<Matrix> {
    let seq = SeqId(1);
    let mut rows = Rows::new();
    rows.chain(seq, cache.committed(seq), tokens, Wanted::All)?;
    let mut txn = Txn::begin(cache, &rows.want()).expect("room");
    let outputs = head.forward(&rows, features, &mut txn)?;
    txn.commit_all(seq)?;
    Ok(outputs.gather([tokens.len() - 1]))
}
