//! Data of a target's own answers, and heads trained on them.

use std::{fs, path::Path, sync::Arc};

use eyrie::{
    TokenId,
    draft::{
        Pick, Shape,
        eagle::{EagleDrafter, Head, HeadCheckpoint, HeadOptions, TargetFacts, Version},
    },
    model::{Dtype, Target, load::Checkpoint},
    train::{
        Answering, Data, Drawn, Facts, HeadType, Prompt, Recipe, Trainer, Writer, default_taps,
        distill,
    },
};
use eyrie_fixtures::{Fixture, tt};
use tempfile::TempDir;

use crate::support::{Lab, at, drawn, load, request};

/// The random target on disk and in memory.
struct Bench {
    dir: TempDir,
    checkpoint: Checkpoint,
    target: Arc<dyn Target>,
    taps: Vec<usize>,
}

const SEED: u64 = 9;
const TEMPERATURES: [f64; 2] = [0.0, 0.9];
const ANSWER: usize = 20;

impl Bench {
    fn new() -> Self {
        Self::of(&tt())
    }

    fn of(fixture: &Fixture) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let path = dir.path().join("target");
        fixture.write_dir(&path).expect("the fixture is written");
        let checkpoint = Checkpoint::open(&path).expect("it opens");
        Self {
            taps: default_taps(checkpoint.config()).unwrap_or_else(|_| vec![1, 3, 5]),
            checkpoint,
            target: load(&path, Dtype::AsStored, 1),
            dir,
        }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn facts(&self) -> Facts {
        let drawn = Drawn {
            dtype: "as-stored".to_owned(),
            seed: SEED,
            temperatures: TEMPERATURES.to_vec(),
            max_tokens: ANSWER,
        };
        Facts::of(&self.checkpoint, self.taps.clone(), drawn).expect("facts")
    }

    fn how(&self, batch: usize) -> Answering {
        Answering {
            taps: self.taps.clone(),
            max_tokens: ANSWER,
            temperatures: TEMPERATURES.to_vec(),
            batch,
            seed: SEED,
            eos: vec![5],
            valid: 64,
        }
    }

    /// Answers `prompts` into the folder `name`, until `stop` passes have been made.
    fn distill(&self, name: &str, prompts: &[Prompt], batch: usize, stop: usize) -> Data {
        let mut writer = Writer::open(&self.at(name), self.facts()).expect("a folder");
        let mut passes = 0;
        let answered = distill(
            &*self.target,
            prompts,
            &self.how(batch),
            &mut writer,
            &mut |_| {
                passes += 1;
                passes < stop
            },
        );
        answered.expect("answers");
        writer.data()
    }

    fn data(&self) -> Data {
        self.distill("data", &prompts(40), 7, usize::MAX)
    }

    fn trainer(&self, data: Data) -> Trainer {
        self.trainer_of(data, recipe())
    }

    fn trainer_of(&self, data: Data, recipe: Recipe) -> Trainer {
        Trainer::new(&self.checkpoint, data, recipe, &[5]).expect("a training")
    }
}

fn recipe() -> Recipe {
    Recipe {
        draft_vocab: 48,
        epochs: [3, 2],
        rows: 60,
        held_out: 5,
        ..Recipe::default()
    }
}

/// The same for EAGLE-1, which guesses among all tokens.
fn recipe_of(head: Version) -> Recipe {
    Recipe {
        head,
        draft_vocab: match head {
            Version::Eagle1 => 64,
            Version::Eagle3 => recipe().draft_vocab,
        },
        ..recipe()
    }
}

fn prompts(count: usize) -> Vec<Prompt> {
    let prompt = |index: usize| {
        let long = if index.is_multiple_of(9) {
            90
        } else {
            2 + index % 5
        };
        let tokens = (0..long).map(|i| at((7 * index + 3 * i + i * i) % 64));
        Prompt {
            index,
            tokens: tokens.collect(),
        }
    };
    (0..count).map(prompt).collect()
}

fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(dir).expect("a folder").map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        (name, fs::read(&path).expect("a file"))
    });
    let mut files: Vec<_> = entries.collect();
    files.sort();
    files
}

/// The answers are plain decoding's, with the seed and temperature of the prompt; the batch changes
/// nothing.
#[test]
fn answers_are_plain_decodings_whatever_the_batch() {
    let bench = Bench::new();
    let prompts = prompts(20);
    let data = bench.distill("one", &prompts, 1, usize::MAX);
    bench.distill("many", &prompts, 11, usize::MAX);
    assert_eq!(files(&bench.at("one")), files(&bench.at("many")));
    let lab = Lab::new(Arc::clone(&bench.target)).with(|lab| lab.eos = vec![5]);
    let mut seen = [0, 0];
    for (entry, prompt) in data.entries().iter().zip(&prompts) {
        let seed = eyrie::sample::derive_line(SEED, prompt.index as u64);
        let mut asked = drawn(&prompt.tokens, entry.temperature, seed);
        asked.max_tokens = ANSWER;
        let plain = lab.base(&[asked]).remove(0);
        let tokens = data.tokens(entry).expect("tokens");
        assert_eq!(tokens[..entry.prompt_tokens], prompt.tokens[..]);
        assert_eq!(tokens[entry.prompt_tokens..], plain[..]);
        seen[usize::from(entry.temperature > 0.0)] += 1;
    }
    assert!(seen[0] > 3 && seen[1] > 3, "{seen:?}");
}

/// What is kept is what the target holds when it is fed the answer at once, in half precision.
#[test]
fn streams_are_the_targets() {
    let bench = Bench::new();
    let data = bench.data();
    let entry = &data.entries()[9];
    let sequence = data.sequence(entry).expect("a sequence");
    let fed = &sequence.tokens[..sequence.tokens.len() - 1];
    let mut cache = bench.target.new_cache(fed.len());
    let mut rows = eyrie::model::Rows::new();
    let seq = eyrie::SeqId(0);
    rows.chain(seq, 0, fed, eyrie::model::Wanted::All)
        .expect("rows");
    let mut txn = eyrie::cache::Txn::begin(&mut cache, &rows.want()).expect("room");
    let mut taps = data.facts().taps.clone();
    taps.push(7);
    let out = bench
        .target
        .forward(&rows, &mut txn, &taps)
        .expect("a pass");
    let streams = out.taps.expect("taps");
    let logits = bench.target.head(&sequence.finals);
    for row in 0..fed.len() {
        for (kept, held) in sequence.taps.row(row).iter().zip(streams.row(row)) {
            assert!(
                (kept - held).abs() <= 1e-3 * held.abs().max(1e-2),
                "{kept} {held}"
            );
        }
        for (kept, said) in logits.row(row).iter().zip(out.logits.row(row)) {
            assert!((kept - said).abs() < 0.02, "{kept} {said}");
        }
    }
}

/// Wherever a run is killed, the next one ends with the bytes of a run that was not.
#[test]
fn a_killed_run_goes_on() {
    let bench = Bench::new();
    let prompts = prompts(18);
    bench.distill("whole", &prompts, 4, usize::MAX);
    let whole = files(&bench.at("whole"));
    for stop in [1, 3, 30, 60] {
        bench.distill("cut", &prompts, 4, stop);
        let there = Data::open(&bench.at("cut")).map_or(0, |data| data.entries().len());
        bench.distill("cut", &prompts, 4, usize::MAX);
        assert_eq!(
            files(&bench.at("cut")),
            whole,
            "stopped after {stop} passes"
        );
        fs::remove_dir_all(bench.at("cut")).expect("removed");
        if stop > 30 {
            assert!(there > 0 && there < 18, "{there}");
        }
    }
    // Killed while it wrote: half a sequence, a whole one without its line, half a line.
    let shard = "shard-00000.bin";
    let full = fs::read(bench.at("whole").join(shard)).expect("a shard");
    let index = fs::read_to_string(bench.at("whole").join("index.jsonl")).expect("an index");
    let lines: Vec<&str> = index.split_inclusive('\n').collect();
    let end = |line: &str| -> usize {
        let entry: serde_json::Value = serde_json::from_str(line).expect("a line");
        let number = |key: &str| usize::try_from(entry[key].as_u64().expect(key)).expect("small");
        number("offset") + number("bytes")
    };
    for (kept, extra, torn) in [
        (5usize, 3, ""),
        (5, 700, ""),
        (0, 100, ""),
        (7, 0, "{\"prompt\":7,\"sha"),
        (18, 0, ""),
    ] {
        fs::create_dir(bench.at("cut")).expect("a folder");
        let facts = bench.at("whole").join("data.json");
        fs::copy(facts, bench.at("cut").join("data.json")).expect("a copy");
        let to = kept.checked_sub(1).map_or(0, |last| end(lines[last]));
        let bytes = &full[..(to + extra).min(full.len())];
        fs::write(bench.at("cut").join(shard), bytes).expect("written");
        let text = lines[..kept].concat() + torn;
        fs::write(bench.at("cut").join("index.jsonl"), text).expect("written");
        bench.distill("cut", &prompts, 4, usize::MAX);
        assert_eq!(
            files(&bench.at("cut")),
            whole,
            "{kept} lines, {extra} bytes, {torn:?}"
        );
        fs::remove_dir_all(bench.at("cut")).expect("removed");
    }
    // The line was written, and the system lost the bytes.
    fs::create_dir(bench.at("cut")).expect("a folder");
    for (name, bytes) in &whole {
        let length = if name == shard {
            bytes.len() - 10
        } else {
            bytes.len()
        };
        fs::write(bench.at("cut").join(name), &bytes[..length]).expect("written");
    }
    bench.distill("cut", &prompts, 4, usize::MAX);
    assert_eq!(files(&bench.at("cut")), whole);
    // More prompts make more of the same.
    let more = bench.distill("cut", &self::prompts(22), 4, usize::MAX);
    assert_eq!(more.entries().len(), 22);
}

/// The first sequences in one shard and the others in the next are read alike; a shard that misses bytes
/// before others is an error, not the end.
#[test]
fn shards_are_whole_but_for_the_last() {
    let bench = Bench::new();
    let whole = bench.distill("data", &prompts(8), 4, usize::MAX);
    let tokens = |data: &Data| -> Vec<Vec<TokenId>> {
        let entries = data.entries().iter();
        entries
            .map(|entry| data.sequence(entry).expect("a sequence").tokens)
            .collect()
    };
    let right = tokens(&whole);
    let (dir, cut) = (bench.at("data"), 5);
    let start = whole.entries()[cut].offset;
    let lines = whole.entries().iter().enumerate().map(|(i, entry)| {
        let mut entry = *entry;
        if i >= cut {
            entry.shard = 1;
            entry.offset -= start;
        }
        serde_json::to_string(&entry).expect("JSON") + "\n"
    });
    fs::write(dir.join("index.jsonl"), lines.collect::<String>()).expect("written");
    let bytes = fs::read(dir.join("shard-00000.bin")).expect("a shard");
    let (first, second) = bytes.split_at(usize::try_from(start).expect("small"));
    fs::write(dir.join("shard-00000.bin"), first).expect("written");
    fs::write(dir.join("shard-00001.bin"), second).expect("written");
    assert_eq!(tokens(&Data::open(&dir).expect("data")), right);
    let more = bench.distill("data", &prompts(9), 4, usize::MAX);
    assert_eq!(tokens(&more)[..8], right);
    let open = Writer::open(&dir, bench.facts()).expect("a folder");
    let error = Writer::open(&dir, bench.facts()).expect_err("refused");
    assert!(error.to_string().contains("is being written to"), "{error}");
    drop(open);
    let whole = files(&dir);
    fs::write(dir.join("shard-00000.bin"), &first[..first.len() - 1]).expect("written");
    let error = Writer::open(&dir, bench.facts()).expect_err("refused");
    assert!(
        error.to_string().contains("are not in shard-00000.bin"),
        "{error}"
    );
    fs::write(dir.join("shard-00000.bin"), first).expect("written");
    assert_eq!(files(&dir), whole);
}

/// Data are not mixed: of another target, other settings, other prompts.
#[test]
fn other_data_are_refused() {
    let bench = Bench::new();
    let prompts = prompts(6);
    bench.distill("data", &prompts, 4, usize::MAX);
    let said = |facts: Facts| {
        let error = Writer::open(&bench.at("data"), facts).expect_err("refused");
        error.to_string()
    };
    let mut facts = bench.facts();
    facts.seed = 1;
    let seed = said(facts);
    assert!(seed.contains("seed is 9; accepted is 1"), "{seed}");
    let mut facts = bench.facts();
    facts.taps = vec![1, 2, 3];
    let taps = said(facts);
    assert!(
        taps.contains("taps is [2,3,4]; accepted is [1,2,3]"),
        "{taps}"
    );
    let mut other = prompts;
    other[2].tokens[0] ^= 1;
    let mut writer = Writer::open(&bench.at("data"), bench.facts()).expect("a folder");
    let error = distill(
        &*bench.target,
        &other,
        &bench.how(4),
        &mut writer,
        &mut |_| true,
    );
    let error = error.expect_err("refused").to_string();
    assert!(error.contains("prompt 2 "), "{error}");
    let stranger = Bench::of(&Fixture { seed: 4, ..tt() });
    let error = Data::of(&bench.at("data"), &stranger.checkpoint).expect_err("refused");
    assert!(error.to_string().contains("made of target"), "{error}");
    fs::write(bench.at("data").join("index.jsonl"), "{}\n").expect("written");
    let error = Data::open(&bench.at("data"))
        .expect_err("refused")
        .to_string();
    assert!(error.contains("index.jsonl: line 1"), "{error}");
}

/// Loss falls, guesses come right, and the exported head drafts what was measured.
fn training_teaches(head: Version) {
    let bench = Bench::new();
    let data = bench.distill("data", &prompts(200), 32, usize::MAX);
    let mut trainer = bench.trainer_of(data, recipe_of(head));
    let before = trainer.note(None).expect("measured").clone();
    let mut losses = Vec::new();
    while let Some(stepped) = trainer.step().expect("a step") {
        losses.push(stepped.loss);
    }
    let after = trainer.note(None).expect("measured").clone();
    assert_eq!(losses.len(), trainer.totals().iter().sum::<usize>());
    assert!(
        after.loss < before.loss - 0.1,
        "{} {}",
        before.loss,
        after.loss
    );
    assert!(after.rates()[0] > before.rates()[0], "{before:?} {after:?}");
    assert_eq!(before.rows, after.rows);

    trainer
        .export(&bench.checkpoint, HeadType::F32, &bench.at("head"))
        .expect("exported");
    let facts = TargetFacts::from(bench.checkpoint.config());
    let opened = HeadCheckpoint::open(&bench.at("head"), &facts, &HeadOptions::default());
    let target = Arc::clone(&bench.target);
    let head = Head::load(&opened.expect("opened"), target, &Default::default()).expect("a head");
    let lab = Lab::new(Arc::clone(&bench.target));
    let shape = Shape {
        pick: Pick::Greedy,
        topk: 1,
    };
    let drafter = EagleDrafter::new(head, shape, 4096);
    let asked: Vec<_> = prompts(30)
        .iter()
        .map(|prompt| request(&prompt.tokens))
        .collect();
    let run = lab.run(Box::new(drafter), &asked);
    assert_eq!(run.tokens(), lab.base(&asked));
    let (drafted, accepted) = run.drafted_accepted();
    assert!(accepted * 50 > drafted, "{accepted} of {drafted}");
}

#[test]
fn training_teaches_eagle3() {
    training_teaches(Version::Eagle3);
}

#[test]
fn training_teaches_eagle1() {
    training_teaches(Version::Eagle1);
}

#[test]
fn a_resumed_training_of_eagle3_is_an_unbroken_one() {
    a_resumed_training_is_an_unbroken_one(Version::Eagle3);
}

#[test]
fn a_resumed_training_of_eagle1_is_an_unbroken_one() {
    a_resumed_training_is_an_unbroken_one(Version::Eagle1);
}

/// A training that was saved and begun again is, to the bit, one that was not.
fn a_resumed_training_is_an_unbroken_one(head: Version) {
    let bench = Bench::new();
    let trainer = || bench.trainer_of(bench.data(), recipe_of(head));
    let mut whole = trainer();
    while whole.step().expect("a step").is_some() {}
    whole.note(None).expect("measured");
    let export = |trainer: &Trainer, name: &str| {
        let path = bench.at(name);
        trainer
            .export(&bench.checkpoint, HeadType::F32, &path)
            .expect("exported");
        trainer.save(&path.join("state")).expect("saved");
        fs::read(path.join("model.safetensors")).expect("a file")
    };
    let all = whole.totals().iter().sum::<usize>();
    let right = export(&whole, "whole");
    let state = bench.at("state");
    for stop in [1, whole.totals()[0], all - 1] {
        let mut trainer = trainer();
        for _ in 0..stop {
            trainer.step().expect("a step");
        }
        trainer.save(&state).expect("saved");
        drop(trainer);
        let recipe = recipe_of(head);
        let resumed = Trainer::resume(&state, &bench.checkpoint, bench.data(), recipe, &[5]);
        let mut trainer = resumed.expect("resumed");
        let mut steps = stop;
        while trainer.step().expect("a step").is_some() {
            steps += 1;
        }
        assert_eq!(steps, all);
        trainer.note(None).expect("measured");
        assert_eq!(trainer.history(), whole.history());
        assert!(
            export(&trainer, &format!("from-{stop}")) == right,
            "stopped at {stop}"
        );
    }
    let other = Recipe {
        seed: 3,
        ..recipe_of(head)
    };
    let error = Trainer::resume(&state, &bench.checkpoint, bench.data(), other, &[5]);
    let error = error.expect_err("another recipe").to_string();
    assert!(error.contains("seed is 0; accepted is 3"), "{error}");
}

/// A training that was saved before a recipe said which head it is of goes on as EAGLE-3's.
#[test]
fn older_states_are_read() {
    let bench = Bench::new();
    let mut trainer = bench.trainer(bench.data());
    trainer.step().expect("a step");
    let state = bench.at("state");
    trainer.save(&state).expect("saved");
    let bytes = fs::read(&state).expect("a file");
    let (len, _) = bytes.split_first_chunk::<8>().expect("a length");
    let end = 8 + usize::try_from(u64::from_le_bytes(*len)).expect("small");
    let header = std::str::from_utf8(&bytes[8..end]).expect("text");
    let key = r#"\"head\":\"eagle3\","#;
    assert_eq!(header.matches(key).count(), 1, "{header}");
    // As long as before: offsets count from its end, and blanks are allowed there.
    let older = format!("{:len$}", header.replace(key, ""), len = header.len());
    let file = [&bytes[..8], older.as_bytes(), &bytes[end..]].concat();
    fs::write(&state, file).expect("written");
    let resumed = Trainer::resume(&state, &bench.checkpoint, bench.data(), recipe(), &[5]);
    assert_eq!(resumed.expect("resumed").place(), trainer.place());
    let other = recipe_of(Version::Eagle1);
    let error = Trainer::resume(&state, &bench.checkpoint, bench.data(), other, &[5]);
    let error = error.expect_err("another head").to_string();
    assert!(
        error.contains("head is \"eagle3\"; accepted is \"eagle1\""),
        "{error}"
    );
}

/// A target too shallow for the usual taps has a head with others, which the head's file says.
#[test]
fn a_head_may_have_other_taps() {
    let bench = Bench::of(&Fixture { layers: 6, ..tt() });
    let mut trainer = bench.trainer(bench.data());
    trainer.step().expect("a step");
    trainer
        .export(&bench.checkpoint, HeadType::Bf16, &bench.at("head"))
        .expect("exported");
    let facts = TargetFacts::from(bench.checkpoint.config());
    let opened = HeadCheckpoint::open(&bench.at("head"), &facts, &HeadOptions::default());
    let text = fs::read_to_string(bench.at("head").join("config.json")).expect("a file");
    let config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        config["eagle_aux_hidden_state_layer_ids"],
        serde_json::json!([1, 3, 5])
    );
    opened.expect("it opens");
}

/// Where most answers end at once, their prompts' rows can be trained on, and only longer ones are held
/// out. What is held out does not choose the draft vocabulary.
#[test]
fn answers_of_one_token_have_no_rows() {
    let bench = Bench::new();
    let mut writer = Writer::open(&bench.at("data"), bench.facts()).expect("a folder");
    let mut how = bench.how(8);
    how.eos = (0..48).collect();
    distill(&*bench.target, &prompts(60), &how, &mut writer, &mut |_| {
        true
    })
    .expect("answers");
    let entries = writer.entries().iter();
    let short = entries.filter(|entry| entry.tokens == entry.prompt_tokens + 1);
    assert!(short.count() > 20);
    let recipe = Recipe {
        prompt_rows: true,
        held_out: 2,
        draft_vocab: 64,
        ..recipe()
    };
    let trainer = Trainer::new(&bench.checkpoint, writer.data(), recipe, &[]);
    let mut trainer = trainer.expect("a training");
    assert_eq!(trainer.sequences().1, 2);
    assert!(trainer.note(None).expect("measured").rows > 1);
    assert!(trainer.step().expect("a step").expect("one").rows > 1);
}

#[test]
fn a_loss_that_is_no_number_is_an_error() {
    let bench = Bench::new();
    let recipe = Recipe {
        rates: [1e38, 1e38],
        ..recipe()
    };
    let trainer = Trainer::new(&bench.checkpoint, bench.data(), recipe, &[]);
    let mut trainer = trainer.expect("a training");
    let error = loop {
        match trainer.step() {
            Ok(stepped) => assert!(stepped.is_some(), "it trained to the end"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("accepted are finite numbers"), "{error}");
}

#[test]
fn what_cannot_be_trained_says_why() {
    let bench = Bench::new();
    let said = |recipe: Recipe, forced: &[TokenId]| {
        let trainer = Trainer::new(&bench.checkpoint, bench.data(), recipe, forced);
        trainer.expect_err("refused").to_string()
    };
    let many = said(
        Recipe {
            draft_vocab: 65,
            ..recipe()
        },
        &[],
    );
    assert!(
        many.contains("65 tokens") && many.contains("to 64"),
        "{many}"
    );
    let part = said(
        Recipe {
            head: Version::Eagle1,
            ..recipe()
        },
        &[],
    );
    assert!(
        part.contains("48 tokens") && part.contains("the target's 64"),
        "{part}"
    );
    let held = said(
        Recipe {
            held_out: 40,
            ..recipe()
        },
        &[],
    );
    assert!(held.contains("40 sequences held out"), "{held}");
    let heads = said(
        Recipe {
            kv_heads: Some(3),
            ..recipe()
        },
        &[],
    );
    assert!(
        heads.contains("3 key heads") && heads.contains("4 heads"),
        "{heads}"
    );
    let forced = said(recipe(), &[64]);
    assert!(forced.contains("token 64"), "{forced}");
    // Forced tokens are there however rare.
    let trainer = Trainer::new(
        &bench.checkpoint,
        bench.data(),
        Recipe {
            draft_vocab: 3,
            held_out: 0,
            ..recipe()
        },
        &[61, 62, 63],
    );
    assert!(trainer.expect("a training").coverage() < 0.5);
    let shallow = Fixture { layers: 6, ..tt() };
    let shallow = Bench::of(&shallow);
    let error = default_taps(shallow.checkpoint.config())
        .expect_err("refused")
        .to_string();
    assert!(error.contains("6 layers"), "{error}");
    let wide = Bench::of(&Fixture {
        head_dim: 16,
        ..tt()
    });
    let trainer = Trainer::new(&wide.checkpoint, wide.data(), recipe(), &[]);
    let error = trainer.expect_err("refused").to_string();
    assert!(
        error.contains("4 heads of 16 values") && error.contains("32 / 4"),
        "{error}"
    );
}
