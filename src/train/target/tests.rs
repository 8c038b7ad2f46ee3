use std::{fs, path::PathBuf};

use candle_core::{Device, Tensor, Var};
use tempfile::TempDir;

use super::{
    TargetRecipe, TargetTrainer, Texts,
    net::{Net, Windows},
    ops::{Causal, Gate, Heads, Norm, Surprise},
};
use crate::{
    SeqId,
    cache::Txn,
    error::Result,
    model::{Llama, LoadOptions, Rows, Target, Wanted, load::Checkpoint},
    train::{HeadType, random::Random},
};

fn recipe() -> TargetRecipe {
    TargetRecipe {
        layers: 2,
        hidden: 16,
        ffn: 24,
        heads: 4,
        kv_heads: 2,
        vocab: 270,
        context: 12,
        steps: 40,
        batch: 6,
        rate: 1e-2,
        seed: 3,
    }
}

/// A sentence again and again, in files of which the second has two texts.
fn written(dir: &TempDir) -> Vec<PathBuf> {
    let text = "The cat sat on the mat, and the dog sat on the cat. ".repeat(60);
    let both = format!("{text}<|endoftext|>{text}");
    let files = [("one.txt", text), ("two.txt", both)];
    let files = files.map(|(name, text)| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("written");
        path
    });
    files.to_vec()
}

fn texts(dir: &TempDir) -> Texts {
    Texts::read(&written(dir)).expect("texts")
}

fn bits(trainer: &TargetTrainer) -> Vec<Vec<u32>> {
    let vars = trainer.net.vars.iter();
    let values = vars.map(|var| {
        let var = var.flatten_all().expect("values");
        var.to_vec1::<f32>().expect("values")
    });
    values
        .map(|values| values.iter().map(|x| x.to_bits()).collect())
        .collect()
}

/// The loss falls, on the held-out text too, and what is exported is what was trained.
#[test]
fn a_target_learns_and_is_exported() -> Result<()> {
    let dir = TempDir::new().expect("a temporary folder");
    let mut trainer = TargetTrainer::new(&texts(&dir), recipe())?;
    let before = trainer.note()?.expect("measured");
    assert!((before - 270_f64.ln()).abs() < 0.5, "{before}");
    let mut steps = 0;
    while let Some(stepped) = trainer.step()? {
        steps += 1;
        assert_eq!((stepped.step, stepped.tokens), (steps, 72));
    }
    let after = trainer.note()?.expect("measured");
    assert_eq!(steps, 40);
    assert!(after < 0.7 * before, "{before} {after}");

    for (stored, most) in [(HeadType::F32, 1e-4), (HeadType::Bf16, 0.1)] {
        let path = dir.path().join(stored.name());
        trainer.export(stored, &path)?;
        let checkpoint = Checkpoint::open(&path)?;
        let llama = Llama::load(&checkpoint, &LoadOptions::default())?;
        let tokens = trainer.tokens.train[5..17].to_vec();
        let mut rows = Rows::new();
        rows.chain(SeqId(0), 0, &tokens, Wanted::All)?;
        let mut cache = llama.new_cache(tokens.len());
        let mut txn = Txn::begin(&mut cache, &rows.want()).expect("room");
        let said = llama.forward(&rows, &mut txn, &[])?.logits;
        let windows = Windows::of(&trainer.tokens.train, 12, &[5]);
        let trained = trainer.net.logits(&windows)?.to_vec2::<f32>()?;
        for (row, trained) in trained.iter().enumerate() {
            for (said, trained) in said.row(row).iter().zip(trained) {
                assert!((said - trained).abs() < most, "{said} {trained}");
            }
        }
    }
    Ok(())
}

/// Stopped anywhere and begun again, it ends with the bits of one that was not.
#[test]
fn a_resumed_target_is_an_unbroken_one() -> Result<()> {
    let dir = TempDir::new().expect("a temporary folder");
    let (texts, path) = (texts(&dir), dir.path().join("state.safetensors"));
    let mut whole = TargetTrainer::new(&texts, recipe())?;
    while whole.step()?.is_some() {}
    for stop in [0, 1, 33, 40] {
        let mut cut = TargetTrainer::new(&texts, recipe())?;
        for _ in 0..stop {
            cut.step()?;
        }
        cut.note()?;
        cut.save(&path)?;
        let mut again = TargetTrainer::resume(&path, &texts, recipe())?;
        assert_eq!(again.steps(), stop);
        assert_eq!(again.history(), cut.history());
        while again.step()?.is_some() {}
        assert_eq!(bits(&again), bits(&whole), "stopped after {stop} steps");
        assert_eq!(again.adam, whole.adam);
    }
    // Another recipe, other texts, no training.
    let said = |recipe: TargetRecipe| {
        let error = TargetTrainer::resume(&path, &texts, recipe);
        error.expect_err("refused").to_string()
    };
    let longer = TargetRecipe {
        steps: 41,
        ..recipe()
    };
    assert!(said(longer).contains("steps is 40; accepted is 41"));
    let words = "Other words.<|endoftext|>More.<|endoftext|>The last.";
    fs::write(dir.path().join("one.txt"), words).expect("written");
    let other = Texts::read(&[dir.path().join("one.txt")])?;
    let error = TargetTrainer::resume(&path, &other, recipe()).expect_err("refused");
    assert!(error.to_string().contains("bytes is "), "{error}");
    fs::write(&path, "no tensors").expect("written");
    said(recipe());
    Ok(())
}

/// Texts and sizes that cannot be trained with are errors that say what would be accepted.
#[test]
fn what_cannot_be_trained_is_refused() -> Result<()> {
    let dir = TempDir::new().expect("a temporary folder");
    let path = dir.path().join("lie.txt");
    for (bytes, word) in [
        (&b""[..], "has no text"),
        (b" \n<|endoftext|> ", "has no text"),
        (b"caf\xe9", "byte 3 is no UTF-8"),
    ] {
        fs::write(&path, bytes).expect("written");
        let error = Texts::read(std::slice::from_ref(&path))
            .expect_err("refused")
            .to_string();
        assert!(error.contains(word) && error.contains("lie.txt"), "{error}");
    }
    assert!(Texts::read(&[]).is_err());
    assert!(Texts::read(&[dir.path().join("nowhere")]).is_err());
    let texts = texts(&dir);
    let good = recipe();
    for (recipe, word) in [
        (
            TargetRecipe {
                vocab: 256,
                ..good.clone()
            },
            "vocab is 256; accepted is 257",
        ),
        (
            TargetRecipe {
                vocab: 4000,
                ..good.clone()
            },
            "accepted is 257 to ",
        ),
        (
            TargetRecipe {
                context: 100_000,
                ..good.clone()
            },
            "accepted are 200000",
        ),
        (
            TargetRecipe {
                heads: 3,
                ..good.clone()
            },
            "hidden is 16 and heads 3",
        ),
        (
            TargetRecipe {
                heads: 16,
                ..good.clone()
            },
            "a multiple of 32",
        ),
        (
            TargetRecipe {
                kv_heads: 3,
                ..good.clone()
            },
            "heads is 4 and kv_heads 3",
        ),
        (
            TargetRecipe {
                layers: 0,
                ..good.clone()
            },
            "layers is 0",
        ),
        (
            TargetRecipe {
                batch: 0,
                ..good.clone()
            },
            "batch is 0",
        ),
        (
            TargetRecipe {
                rate: f64::NAN,
                ..good
            },
            "rate is NaN",
        ),
    ] {
        let error = TargetTrainer::new(&texts, recipe)
            .expect_err("refused")
            .to_string();
        assert!(error.contains(word), "{error}");
    }
    // A rate that drives the weights away.
    let wild = TargetRecipe { rate: 1e30, ..good };
    let mut trainer = TargetTrainer::new(&texts, wild)?;
    let failed = (0..40).find_map(|_| trainer.step().err());
    let error = failed.expect("no numbers any more").to_string();
    assert!(error.contains("a lower rate"), "{error}");
    Ok(())
}

/// Every gradient is the slope of the loss, in each parameter's direction of steepest rise.
#[test]
fn gradients_are_slopes() -> Result<()> {
    let mut random = Random::new(4);
    let recipe = recipe();
    let net = Net::new(&recipe, &mut random)?;
    let tokens: Vec<u32> = (0..30).map(|i| (i * i + 7 * i) % 270).collect();
    let windows = Windows::of(&tokens, 12, &[0, 9, 17]);
    let (_, gradients) = net.gradients(&windows)?;
    for (var, gradient) in net.vars.iter().zip(&gradients) {
        let length = gradient.iter().map(|x| x * x).sum::<f32>().sqrt();
        assert!(length > 0.0);
        let kept = var.flatten_all()?.to_vec1::<f32>()?;
        let step = 3e-3;
        let at = |sign: f32| -> Result<f64> {
            let moved = kept.iter().zip(gradient);
            let moved: Vec<f32> = moved.map(|(x, g)| x + sign * step * g / length).collect();
            var.set(&Tensor::from_vec(moved, var.shape(), &Device::Cpu)?)?;
            Ok(net.loss(&windows)? / 36.0)
        };
        let slope = (at(1.0)? - at(-1.0)?) / f64::from(2.0 * step);
        var.set(&Tensor::from_vec(kept.clone(), var.shape(), &Device::Cpu)?)?;
        let off = (slope - f64::from(length)).abs();
        assert!(
            off < 0.02 * f64::from(length) + 1e-4,
            "{:?}: {slope} {length}",
            var.shape()
        );
    }
    Ok(())
}

/// What is done in one pass is what candle's own operations do.
#[test]
fn operations_are_candles() -> Result<()> {
    let mut random = Random::new(5);
    let mut made = |shape: &[usize]| -> Result<Var> {
        let values = random.values(shape.iter().product(), 1.0);
        Ok(Var::from_tensor(&Tensor::from_vec(
            values,
            shape,
            &Device::Cpu,
        )?)?)
    };
    let near = |ours: &Tensor, candles: &Tensor, of: &[&Var]| -> Result<()> {
        assert_eq!(ours.dims(), candles.dims());
        let close = |a: &Tensor, b: &Tensor| -> Result<()> {
            let (a, b) = (a.flatten_all()?, b.flatten_all()?);
            let off = (a - b)?.abs()?.max(0)?.to_scalar::<f32>()?;
            assert!(off < 1e-4, "{off}");
            Ok(())
        };
        close(ours, candles)?;
        let (ours, candles) = (ours.sqr()?.backward()?, candles.sqr()?.backward()?);
        for var in of {
            close(
                ours.get(var).expect("a slope"),
                candles.get(var).expect("a slope"),
            )?;
        }
        Ok(())
    };
    let (x, w) = (made(&[5, 8])?, made(&[8])?);
    let norm = x.apply_op2(w.as_tensor(), Norm { eps: 1e-5 })?;
    near(
        &norm,
        &candle_nn::ops::rms_norm_slow(&x, &w, 1e-5)?,
        &[&x, &w],
    )?;
    let halves = x.chunk(2, 1)?;
    near(
        &x.apply_op1(Gate)?,
        &(halves[0].silu()? * &halves[1])?,
        &[&x],
    )?;
    let targets = vec![3, 0, 7, 7, 1];
    let ids = Tensor::new(targets.as_slice(), &Device::Cpu)?;
    let log = candle_nn::loss::cross_entropy(&x, &ids)?;
    near(&x.apply_op1(Surprise { targets })?, &(log * 5.0)?, &[&x])?;

    let scores = made(&[2, 6, 3])?;
    let hidden = [0, 1, 1, 0, 0, 1, 0, 0, 0].map(|hide: u8| f32::from(hide) * -1e9);
    let mask = Tensor::from_vec([hidden, hidden].concat(), (6, 3), &Device::Cpu)?;
    let masked = (scores.as_tensor() * 0.5)?.broadcast_add(&mask)?;
    let law = candle_nn::ops::softmax(&masked, 2)?;
    near(&scores.apply_op1(Causal { scale: 0.5 })?, &law, &[&scores])?;

    let (windows, context, heads, kv_heads, head_dim) = (2, 3, 4, 2, 4);
    let rows = made(&[windows * context, (heads + 2 * kv_heads) * head_dim])?;
    let angles = Tensor::from_vec(
        vec![0.0_f32, 0.0, 1.0, 0.1, 2.0, 0.2],
        (context, 2),
        &Device::Cpu,
    )?;
    let (cos, sin) = (angles.cos()?, angles.sin()?);
    let turns = cos
        .flatten_all()?
        .to_vec1()?
        .into_iter()
        .zip(sin.flatten_all()?.to_vec1()?);
    let split = Heads {
        windows,
        context,
        heads,
        kv_heads,
        head_dim,
        turns: std::sync::Arc::new(turns.collect()),
    };
    let by_head = rows.reshape((windows, context, heads + 2 * kv_heads, head_dim))?;
    let by_head = by_head.transpose(1, 2)?;
    let part = |from: usize, count: usize, turned: bool| -> Result<Tensor> {
        let part = by_head.narrow(1, from, count)?.contiguous()?;
        let part = if turned {
            candle_nn::rotary_emb::rope_slow(&part, &cos, &sin)?
        } else {
            part
        };
        let part = part.reshape((windows, kv_heads, count / kv_heads * context, head_dim))?;
        Ok(part.transpose(0, 1)?.contiguous()?.flatten_all()?)
    };
    let parts = [
        part(0, heads, true)?,
        part(heads, kv_heads, true)?,
        part(heads + kv_heads, kv_heads, false)?,
    ];
    near(&rows.apply_op1(split)?, &Tensor::cat(&parts, 0)?, &[&rows])
}
