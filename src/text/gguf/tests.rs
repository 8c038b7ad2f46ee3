use super::*;

/// Bytes of `abc ` and the newline, two merges, a control, a user-defined and an unused token.
fn small() -> Vocabulary {
    let tokens = [
        "a", "b", "c", "Ġ", "Ċ", "ab", "Ġab", "<|end|>", "<think>", "[PAD9]",
    ];
    Vocabulary {
        model: "gpt2".into(),
        pre: "gpt-2".into(),
        tokens: tokens.map(str::to_owned).to_vec(),
        merges: vec!["a b".into(), "Ġ ab".into()],
        types: vec![1, 1, 1, 1, 1, 1, 1, 3, 4, 5],
        bos: Some(7),
        eos: Some(7),
        ..Vocabulary::default()
    }
}

fn refusal(vocabulary: &Vocabulary) -> String {
    vocabulary.tokenizer().unwrap_err().to_string()
}

#[test]
fn merges_added_tokens_and_padding() {
    let tokenizer = small().tokenizer().unwrap();
    assert_eq!(tokenizer.encode("ab abc").unwrap(), [5, 6, 2]);
    assert_eq!(tokenizer.encode("a<|end|><think>b").unwrap(), [0, 7, 8, 1]);
    assert_eq!(tokenizer.decode(&[5, 7, 8, 6, 9]).unwrap(), "ab<think> ab");
    assert_eq!(
        tokenizer.valid(),
        9,
        "padding behind the tokens is no token"
    );
    assert!(tokenizer.is_special(7));
    assert!(!tokenizer.is_special(8));
    assert_eq!(tokenizer.token(9), None);
}

#[test]
fn a_byte_without_a_token_is_left_out_before_merging() {
    let tokenizer = small().tokenizer().unwrap();
    assert_eq!(tokenizer.encode("axb").unwrap(), [5]);
}

#[test]
fn bos_by_the_file_else_by_the_pre_tokenizer() {
    let prompt = |vocabulary: &Vocabulary| {
        let tokenizer = vocabulary.tokenizer().unwrap();
        assert_eq!(tokenizer.encode("b").unwrap(), [1]);
        tokenizer.encode_prompt("b").unwrap()
    };
    assert_eq!(prompt(&small()), [1]);
    let mut vocabulary = small();
    vocabulary.add_bos = Some(true);
    assert_eq!(prompt(&vocabulary), [7, 1]);
    vocabulary.pre = "llama-bpe".into();
    vocabulary.add_bos = None;
    assert_eq!(prompt(&vocabulary), [7, 1]);
    vocabulary.add_bos = Some(false);
    assert_eq!(prompt(&vocabulary), [1]);

    vocabulary.add_bos = Some(true);
    vocabulary.bos = None;
    assert!(refusal(&vocabulary).contains("no bos_token_id"));
    vocabulary.bos = Some(10);
    assert!(refusal(&vocabulary).contains("bos_token_id 10: there are 10 tokens"));
}

#[test]
fn each_pre_tokenizer_splits_in_its_own_way() {
    // Whatever a split leaves together, the merges join.
    let tokens = [
        "1", "2", "3", "4", "12", "123", "1234", ".", "..", "Ã", "©", "Ã©", "e", "Ì", "ģ",
    ];
    let merges = ["1 2", "12 3", "123 4", ". .", "Ã ©"];
    let spelled = |pre: &str, text: &str| -> Vec<String> {
        let vocabulary = Vocabulary {
            model: "gpt2".into(),
            pre: pre.into(),
            tokens: tokens.map(str::to_owned).to_vec(),
            merges: merges.map(str::to_owned).to_vec(),
            add_bos: Some(false),
            ..Vocabulary::default()
        };
        let tokenizer = vocabulary.tokenizer().unwrap();
        let ids = tokenizer.encode(text).unwrap();
        ids.iter().map(|id| tokenizer.token(*id).unwrap()).collect()
    };
    assert_eq!(spelled("smollm", "1234"), ["1", "2", "3", "4"]);
    assert_eq!(spelled("gpt-2", "1234"), ["1234"]);
    assert_eq!(spelled("qwen2", "1234"), ["1", "2", "3", "4"]);
    assert_eq!(spelled("llama-bpe", "1234"), ["123", "4"]);
    assert_eq!(spelled("default", "1234.."), ["123", "4", ".."]);
    // Composition: `e` and U+0301 are one character only where the pre-tokenizer normalises.
    assert_eq!(spelled("qwen2", "e\u{301}"), ["Ã©"]);
    assert_eq!(spelled("gpt-2", "e\u{301}"), ["e", "Ì", "ģ"]);
}

#[test]
fn contradictions_are_named() {
    let mut other = small();
    other.model = "llama".into();
    assert!(refusal(&other).contains("tokenizer.ggml.model \"llama\": only \"gpt2\""));

    let mut short = small();
    short.types.pop();
    assert!(refusal(&short).contains("9 token types for 10 tokens"));

    let mut twice = small();
    twice.tokens[2] = "a".into();
    assert!(refusal(&twice).contains("tokens 0 and 2 are both \"a\""));

    let mut lone = small();
    lone.merges[1] = "ab".into();
    assert!(refusal(&lone).contains("merge 1 \"ab\""));

    let mut unknown = small();
    unknown.merges[1] = "a q".into();
    assert!(refusal(&unknown).contains("tokenizer GGUF metadata:"));

    let mut prefix = small();
    prefix.add_space_prefix = true;
    assert!(refusal(&prefix).contains("add_space_prefix true"));
}

#[test]
fn the_chat_template_gets_the_spelled_tokens() {
    let mut vocabulary = small();
    assert!(vocabulary.chat_template().unwrap().is_none());
    vocabulary.chat_template =
        Some("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}".into());
    let template = vocabulary.chat_template().unwrap().unwrap();
    let messages = [crate::text::Message::new("user", "hi")];
    assert_eq!(
        template.render(&messages, false).unwrap(),
        "<|end|>hi<|end|>"
    );
    vocabulary.eos = Some(99);
    assert!(vocabulary.chat_template().is_err());
}
