//! The real chat model on the command line, if it is there.

use super::generate;
use crate::support::smollm2;

/// What the model says with `args`.
fn says(args: &[&str]) -> Option<String> {
    let model = smollm2()?.display().to_string();
    let ran = generate(&[&["--model", &model], args].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    Some(ran.out)
}

#[test]
fn smollm2_names_the_capital_of_france() {
    let ask = |drafter: &[&str]| {
        let chat = ["--chat", "--prompt", "Name the capital of France."];
        says(&[&chat, drafter].concat())
    };
    for drafter in [&["--drafter", "ngram"][..], &[]] {
        let Some(answer) = ask(drafter) else { return };
        assert_eq!(answer, "The capital of France is Paris.\n");
    }
}

#[test]
fn smollm2_goes_on_with_paris() {
    let raw = ["--prompt", "The capital of France is", "--max-tokens", "2"];
    let Some(text) = says(&raw) else { return };
    assert_eq!(text, " Paris.\n");
}

/// A gap of 0.08 logits: exact arithmetic decides it.
#[test]
fn smollm2_in_f32_answers_the_question() {
    let chat = ["--chat", "--prompt", "What is the capital of France?"];
    let Some(answer) = says(&[&chat[..], &["--dtype", "f32"]].concat()) else {
        return;
    };
    assert_eq!(answer, "The capital of France is Paris.\n");
}
