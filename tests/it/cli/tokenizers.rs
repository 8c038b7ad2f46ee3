//! Cases 47 and 48 on the command line: draft models whose tokenizers differ.

use std::path::{Path, PathBuf};

use eyrie_fixtures::{Fixture, td, tt};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Ran, generate};

fn write(dir: &Path, name: &str, fixture: &Fixture) -> PathBuf {
    let path = dir.join(name);
    Fixture {
        tokenizer: true,
        ..fixture.clone()
    }
    .write_dir(&path)
    .expect("the fixture is written");
    path
}

fn run(target: &Path, draft: Option<&Path>, more: &[&str]) -> Ran {
    let (target, draft) = (
        target.display().to_string(),
        draft.map(|path| path.display().to_string()),
    );
    let draft = draft.iter().flat_map(|path| ["--draft", path.as_str()]);
    let base = [
        "--model",
        &target,
        "--prompt",
        "the cat",
        "--json",
        "--max-tokens",
        "40",
        "--ignore-eos",
    ];
    let drawn = ["--temperature", "1", "--seed", "6"];
    let args: Vec<&str> = base
        .into_iter()
        .chain(drawn)
        .chain(draft)
        .chain(more.iter().copied())
        .collect();
    generate(&args)
}

/// Case 47.
pub(crate) fn padded_vocabularies_work_both_ways() {
    let dir = TempDir::new().unwrap();
    let narrow = write(dir.path(), "narrow", &tt());
    let wide = write(dir.path(), "wide", &Fixture { vocab: 72, ..td() });
    for (target, draft) in [(&narrow, &wide), (&wide, &narrow)] {
        let base = run(target, None, &[]).result();
        let ran = run(target, Some(draft), &[]);
        assert_eq!(ran.err, "", "one tokenizer, no warning");
        let result = ran.result();
        assert_eq!(result["tokens"], base["tokens"]);
        let ids = result["tokens"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_u64().unwrap());
        assert!(
            ids.max() < Some(60),
            "ids beyond the tokenizer are never emitted"
        );
        let rounds = result["rounds"].as_array().unwrap();
        assert!(
            rounds.iter().any(|round| round["drafted"] != 0),
            "{rounds:?}"
        );
    }
}

/// Changes the tokenizer of a model directory.
fn edit(dir: &Path, change: impl FnOnce(&mut Value)) {
    let path = dir.join("tokenizer.json");
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut json);
    std::fs::write(&path, json.to_string()).unwrap();
}

/// Case 48.
pub(crate) fn a_longer_tail_warns_and_other_content_is_refused() {
    let dir = TempDir::new().unwrap();
    let target = write(dir.path(), "target", &tt());
    let base = run(&target, None, &[]).result();

    let tail = write(dir.path(), "tail", &td());
    edit(&tail, |json| {
        let mut extra = json["added_tokens"][0].clone();
        extra["id"] = 60.into();
        extra["content"] = "<tool>".into();
        json["added_tokens"].as_array_mut().unwrap().push(extra);
    });
    let ran = run(&target, Some(&tail), &[]);
    assert!(
        ran.err.starts_with("warning: --draft ") && ran.err.contains("<tool>"),
        "{}",
        ran.err
    );
    assert_eq!(ran.result()["tokens"], base["tokens"]);

    let other = write(dir.path(), "other", &td());
    edit(&other, |json| {
        let vocab = json["model"]["vocab"].as_object_mut().unwrap();
        let (a, b) = (vocab["0"].clone(), vocab["1"].clone());
        vocab["0"] = b;
        vocab["1"] = a;
    });
    let ran = run(&target, Some(&other), &[]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.starts_with("error: --draft ") && ran.err.lines().count() == 1,
        "{}",
        ran.err
    );
    assert!(
        ran.err.contains("differ at 2 of 60 ids") && ran.err.contains("--allow-tokenizer-mismatch")
    );
    let allowed = run(&target, Some(&other), &["--allow-tokenizer-mismatch"]);
    assert_eq!(allowed.result()["tokens"], base["tokens"]);

    let bare = dir.path().join("bare");
    td().write_dir(&bare).unwrap();
    let ran = run(&target, Some(&bare), &[]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("has no tokenizer"), "{}", ran.err);
    assert_eq!(
        run(&target, Some(&bare), &["--allow-tokenizer-mismatch"]).result()["tokens"],
        base["tokens"]
    );

    let silent = dir.path().join("silent");
    tt().write_dir(&silent).unwrap();
    let paths = [&silent, &bare].map(|path| path.display().to_string());
    let ids = ["--prompt-ids", "1,2", "--max-tokens", "4", "--json"];
    let ran = generate(&[&["--model", &paths[0], "--draft", &paths[1]][..], &ids].concat());
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (0, ""),
        "no tokenizer on either side is fine"
    );
}

#[test]
fn a_tokenizer_that_breaks_its_library_is_one_line_of_error() {
    let dir = tempfile::tempdir().unwrap();
    let split = |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
    let template = json!({
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "B", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {},
    });
    let cases = [
        ("pre_tokenizer", split("(a+)+$")),
        ("pre_tokenizer", json!({"type": "FixedLength", "length": 0})),
        (
            "normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ),
        (
            "normalizer",
            json!({"type": "Replace", "pattern": {"String": ""}, "content": "xxxx"}),
        ),
        ("post_processor", template),
    ];
    for (i, (part, value)) in cases.into_iter().enumerate() {
        let model = write(dir.path(), &i.to_string(), &tt());
        edit(&model, |json| json[part] = value.clone());
        let model = model.display().to_string();
        let prompt = format!("{}!", "a".repeat(40));
        let ran = generate(&["--model", &model, "--prompt", &prompt, "--max-tokens", "2"]);
        assert_eq!(ran.code, 1, "{value}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{value}: {}", ran.err);
        assert!(ran.err.starts_with("error: "), "{value}: {}", ran.err);
    }
    let model = write(dir.path(), "dropout", &tt());
    edit(&model, |json| json["model"]["dropout"] = json!(0.5));
    let model = model.display().to_string();
    let ran = generate(&["--model", &model, "--prompt", "a"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("dropout 0.5"), "{}", ran.err);
}
