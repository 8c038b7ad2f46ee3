//! Tokenizers, chat templates and streams, against goldens of public packages.

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use eyrie::model::load::gguf::Header;
use eyrie::text::{Agreement, ChatTemplate, Message, TextError, Tokenizer, Vocabulary};
use proptest::prelude::*;
use serde_json::Value;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn lines(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(data(name)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn ids(line: &Value) -> Vec<u32> {
    serde_json::from_value(line["ids"].clone()).unwrap()
}

fn tiny(name: &str) -> Tokenizer {
    Tokenizer::from_json(&data(&format!("tokenizer/tiny-{name}.json"))).unwrap()
}

/// `tiny-NAME.json` with another decoder.
fn load_with_decoder(name: &str, decoder: &Value) -> Result<Tokenizer, TextError> {
    let text = fs::read_to_string(data(&format!("tokenizer/tiny-{name}.json"))).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    json["decoder"] = decoder.clone();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), json.to_string()).unwrap();
    Tokenizer::from_json(file.path())
}

/// What SmolLM2's file says about its text; `None` without the file.
fn smollm2() -> Option<&'static (Vocabulary, Tokenizer)> {
    static LOADED: OnceLock<Option<(Vocabulary, Tokenizer)>> = OnceLock::new();
    let load = || {
        let file = fs::File::open(crate::support::smollm2()?).unwrap();
        let length = file.metadata().unwrap().len();
        let mut file = BufReader::new(file);
        let header = Header::read(&mut file, length).unwrap();
        let vocabulary = Vocabulary::from_metadata(&header.metadata)
            .unwrap()
            .unwrap();
        let tokenizer = vocabulary.tokenizer().unwrap();
        Some((vocabulary, tokenizer))
    };
    LOADED.get_or_init(load).as_ref()
}

#[test]
fn smollm2_ids_equal_the_goldens() {
    let Some((_, tokenizer)) = smollm2() else {
        return;
    };
    let goldens = lines("tokenizer/smollm2.jsonl");
    assert!(goldens.len() >= 200, "{} goldens", goldens.len());
    for line in &goldens {
        let text = line["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text).unwrap(), ids(line), "{text:?}");
        assert_eq!(
            tokenizer.encode_prompt(text).unwrap(),
            ids(line),
            "{text:?}"
        );
        assert_eq!(
            tokenizer.decode(&ids(line)).unwrap(),
            line["decoded"],
            "{text:?}"
        );
    }
    assert_eq!(tokenizer.valid(), 49_152);
    assert_eq!(tokenizer.token(2).as_deref(), Some("<|im_end|>"));
}

#[test]
fn smollm2_streams_the_goldens() {
    let Some((_, tokenizer)) = smollm2() else {
        return;
    };
    for line in lines("tokenizer/smollm2.jsonl") {
        assert_eq!(streamed(tokenizer, &ids(&line)), line["decoded"]);
    }
}

#[test]
fn smollm2_chat_equals_the_goldens() {
    let Some((vocabulary, tokenizer)) = smollm2() else {
        return;
    };
    let template = vocabulary.chat_template().unwrap().unwrap();
    equal_chats(&template, "chat/smollm2.jsonl");
    assert_eq!(template.end_token(tokenizer), Some(2));
}

#[test]
fn headers_chat_equals_the_goldens() {
    let source = fs::read_to_string(data("chat/headers.jinja")).unwrap();
    let template = ChatTemplate::new("headers", &source, Some("<|begin|>"), Some("<|stop|>"));
    let template = template.unwrap();
    equal_chats(&template, "chat/headers.jsonl");
    assert_eq!(template.end_token(&tiny("bytes")), Some(281));
    assert_eq!(template.end_token(&tiny("pieces")), None);
}

fn equal_chats(template: &ChatTemplate, goldens: &str) {
    let goldens = lines(goldens);
    assert!(goldens.len() >= 5, "{} goldens", goldens.len());
    for line in goldens {
        let messages: Vec<Message> = serde_json::from_value(line["messages"].clone()).unwrap();
        let prompt = line["add_generation_prompt"].as_bool().unwrap();
        match template.render(&messages, prompt) {
            Ok(text) => assert_eq!(text, line["text"], "{line}"),
            Err(error) => {
                let expected = line["error"].as_str().unwrap_or("no error");
                assert!(error.to_string().contains(expected), "{error}: {line}");
            }
        }
    }
}

#[test]
fn end_tokens_of_common_endings() {
    let tokenizer = tiny("bytes");
    let end = |source: &str| {
        let template = ChatTemplate::new("t", source, Some("<|begin|>"), Some("<|end|>"));
        template.unwrap().end_token(&tokenizer)
    };
    let each = "{% for m in messages %}";
    assert_eq!(
        end(&format!(
            "{each}{{{{ m.content }}}}{{{{ eos_token }}}}{{% endfor %}}"
        )),
        Some(281)
    );
    assert_eq!(
        end(&format!(
            "{each}{{{{ m.content }}}} <|end|>\n{{% endfor %}}"
        )),
        Some(281)
    );
    assert_eq!(
        end(&format!("{each}{{{{ m.content }}}}\n{{% endfor %}}")),
        None
    );
    assert_eq!(
        end(&format!("{each}{{{{ m.content }}}}###{{% endfor %}}")),
        None
    );
    assert_eq!(end("{{ raise_exception('no') }}"), None);
    assert_eq!(end("{{ messages[0].content }}"), None);
}

#[test]
fn a_prompt_gets_what_the_model_wants_and_a_chat_does_not() {
    let tokenizer = tiny("bytes");
    let prompt = tokenizer.encode_prompt("the").unwrap();
    assert_eq!(prompt[0], 280);
    assert_eq!(tokenizer.encode("the").unwrap(), prompt[1..]);
    let chat = tokenizer.encode("<|begin|>a<think>b<|end|>").unwrap();
    assert_eq!(chat, [280, u32::from(b'a'), 282, u32::from(b'b'), 281]);
    assert_eq!(tokenizer.decode(&chat).unwrap(), "a<think>b");
    assert_eq!(tokenizer.valid(), 283);
    assert_eq!(tokenizer.id("<|end|>"), Some(281));
    assert_eq!(tokenizer.token(283), None);
}

#[test]
fn limits_stored_in_the_file_do_not_cut_prompts() {
    let text = fs::read_to_string(data("tokenizer/tiny-bytes.json")).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    json["truncation"] = serde_json::json!(
        {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0});
    json["padding"] = serde_json::json!(
        {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null,
         "pad_id": 0, "pad_type_id": 0, "pad_token": "!"});
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), json.to_string()).unwrap();
    let cut = Tokenizer::from_json(file.path()).unwrap();
    assert!(cut.hf().get_truncation().is_none());
    let text = "a text of more than four tokens";
    assert_eq!(
        cut.encode(text).unwrap(),
        tiny("bytes").encode(text).unwrap()
    );
}

#[test]
fn bad_files_are_named() {
    let missing = Tokenizer::from_json(Path::new("nowhere/tokenizer.json")).unwrap_err();
    assert!(matches!(missing, TextError::Read { .. }));
    assert!(missing.to_string().starts_with("nowhere/tokenizer.json"));

    let file = tempfile::NamedTempFile::new().unwrap();
    for bad in ["", "{", "[]", "{}", "{\"version\": \"9.0\"}", "\u{0}\u{1}"] {
        fs::write(file.path(), bad).unwrap();
        let error = Tokenizer::from_json(file.path()).unwrap_err().to_string();
        assert!(
            error.contains(&file.path().display().to_string()),
            "{error}"
        );
    }
}

/// A GGUF header without tensors. A value is its type, then its bytes.
fn header(keys: &[(&str, Vec<u8>)]) -> Header {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        bytes.extend(plain(key));
        bytes.extend(value);
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    Header::read(&mut bytes.as_slice(), bytes.len() as u64).unwrap()
}

fn plain(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&8_u32.to_le_bytes()[..], &plain(text)].concat()
}

fn strings(list: &[&str]) -> Vec<u8> {
    let head = [9_u32.to_le_bytes(), 8_u32.to_le_bytes()].concat();
    let items: Vec<u8> = list.iter().flat_map(|text| plain(text)).collect();
    [&head[..], &(list.len() as u64).to_le_bytes(), &items].concat()
}

fn int(value: i32) -> Vec<u8> {
    [5_u32.to_le_bytes(), value.to_le_bytes()].concat()
}

#[test]
fn gguf_metadata_is_read_or_named() {
    let none = header(&[("general.name", string("x"))]);
    assert!(Tokenizer::from_gguf(&none.metadata).unwrap().is_none());

    let good = [
        ("tokenizer.ggml.model", string("gpt2")),
        ("tokenizer.ggml.pre", string("gpt-2")),
        (
            "tokenizer.ggml.tokens",
            strings(&["a", "b", "ab", "<|end|>"]),
        ),
        ("tokenizer.ggml.merges", strings(&["a b"])),
        ("tokenizer.ggml.bos_token_id", int(3)),
        (
            "tokenizer.ggml.add_bos_token",
            [&7_u32.to_le_bytes()[..], &[1]].concat(),
        ),
    ];
    let tokenizer = Tokenizer::from_gguf(&header(&good).metadata)
        .unwrap()
        .unwrap();
    assert_eq!(tokenizer.encode_prompt("aba").unwrap(), [3, 2, 0]);

    for (key, value, words) in [
        ("tokenizer.ggml.model", string("llama"), "only \"gpt2\""),
        ("tokenizer.ggml.pre", string("bloom"), "accepted are smollm"),
        ("tokenizer.ggml.tokens", int(4), "tokenizer.ggml.tokens"),
        (
            "tokenizer.ggml.merges",
            string("a b"),
            "tokenizer.ggml.merges",
        ),
        (
            "tokenizer.ggml.bos_token_id",
            int(-1),
            "tokenizer.ggml.bos_token_id",
        ),
        (
            "tokenizer.ggml.bos_token_id",
            int(4),
            "bos_token_id 4: there are 4 tokens",
        ),
        (
            "tokenizer.ggml.add_bos_token",
            int(1),
            "tokenizer.ggml.add_bos_token",
        ),
    ] {
        let mut bad = good.to_vec();
        bad.iter_mut().find(|(name, _)| *name == key).unwrap().1 = value;
        let error = Tokenizer::from_gguf(&header(&bad).metadata)
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn tokenizers_are_compared_by_content() {
    let bytes = tiny("bytes");
    assert_eq!(bytes.differences(&tiny("bytes")).agreement, Agreement::Same);

    let text = fs::read_to_string(data("tokenizer/tiny-bytes.json")).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut extra = json["added_tokens"][1].clone();
    extra["id"] = 283.into();
    extra["content"] = "<|extra|>".into();
    json["added_tokens"].as_array_mut().unwrap().push(extra);
    json["post_processor"] = Value::Null;
    fs::write(file.path(), json.to_string()).unwrap();
    let longer = Tokenizer::from_json(file.path()).unwrap();
    let report = bytes.differences(&longer);
    assert_eq!(report.agreement, Agreement::Tail { common: 283 });
    assert_eq!(report.valid, (283, 284));
    assert!(
        report
            .to_string()
            .contains("283 is no token against \"<|extra|>\""),
        "{report}"
    );

    let report = bytes.differences(&tiny("pieces"));
    assert_eq!(report.agreement, Agreement::Content);
    assert!(
        report.to_string().contains("0 is \"Ā\" against \"<unk>\""),
        "{report}"
    );
}

#[test]
fn a_decoder_that_would_panic_is_refused() {
    let strip = serde_json::json!({"type": "Strip", "content": " ", "start": 0, "stop": 2});
    let error = load_with_decoder("pieces", &strip).unwrap_err().to_string();
    assert!(error.contains("\"stop\":2"), "{error}");
    assert!(error.contains("only stop 0"), "{error}");
}

/// All pieces of a stream.
fn streamed(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
    let mut stream = tokenizer.stream();
    let mut text = String::new();
    for token in tokens {
        text.push_str(&stream.push(*token).unwrap());
    }
    text + &stream.finish().unwrap()
}

#[test]
fn characters_that_span_tokens_come_whole_and_at_once() {
    let tokenizer = tiny("bytes");
    let mut stream = tokenizer.stream();
    let pieces: Vec<String> = "a\u{1F600}b"
        .bytes()
        .map(|byte| {
            let id = tokenizer.encode("").unwrap().len() + usize::from(byte);
            stream.push(u32::try_from(id).unwrap()).unwrap()
        })
        .collect();
    assert_eq!(pieces, ["a", "", "", "", "\u{1F600}", "b"]);
    assert_eq!(stream.push(0xE4).unwrap(), "");
    assert_eq!(stream.push(281).unwrap(), "", "a special token has no text");
    assert_eq!(stream.push(0xBD).unwrap(), "");
    assert_eq!(stream.finish().unwrap(), "\u{FFFD}");
    assert_eq!(stream.push(u32::from(b'x')).unwrap(), "x");
}

#[test]
fn spaces_at_the_start_of_a_text_and_within() {
    let tokenizer = tiny("pieces");
    let tokens = tokenizer.encode_prompt("the hand 中 a").unwrap();
    let mut stream = tokenizer.stream();
    let pieces: Vec<String> = tokens.iter().map(|t| stream.push(*t).unwrap()).collect();
    assert_eq!(
        pieces,
        ["", "the", " ha", "n", "d", " ", "", "", "", "中 a"]
    );
    assert_eq!(stream.finish().unwrap(), "");
    assert_eq!(tokenizer.decode(&tokens).unwrap(), "the hand 中 a");
}

#[test]
fn a_long_stream_takes_linear_time() {
    let tokenizer = tiny("pieces");
    let tokens = tokenizer.encode(&"the hand ".repeat(4000)).unwrap();
    let mut stream = tokenizer.stream();
    let mut text = String::new();
    for token in &tokens {
        text.push_str(&stream.push(*token).unwrap());
    }
    assert!(text.len() >= 4000 * "the hand ".len() - 1);
    assert_eq!(
        text + &stream.finish().unwrap(),
        tokenizer.decode(&tokens).unwrap()
    );
}

/// A tokenizer of every way to decode, with the number of ids to draw from.
fn kinds() -> &'static [(Tokenizer, u32)] {
    static KINDS: OnceLock<Vec<(Tokenizer, u32)>> = OnceLock::new();
    KINDS.get_or_init(|| {
        let replace = serde_json::json!(
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
        let fuse = serde_json::json!({"type": "Fuse"});
        let strip = |start: u32, stop: u32| {
            serde_json::json!({"type": "Strip", "content": " ", "start": start, "stop": stop})
        };
        let sequence =
            |steps: &[&Value]| serde_json::json!({"type": "Sequence", "decoders": steps});
        let bytes = serde_json::json!(
            {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        let decoders = [
            Value::Null,
            serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
            serde_json::json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
            serde_json::json!({"type": "BPEDecoder", "suffix": "e"}),
            sequence(&[&replace, &fuse, &strip(3, 0)]),
            sequence(&[&replace, &strip(1, 0), &serde_json::json!({"type": "ByteFallback"})]),
            sequence(&[&fuse, &replace]),
            sequence(&[&replace, &bytes]),
            serde_json::json!({"type": "CTC", "pad_token": "a", "word_delimiter_token": "▁", "cleanup": true}),
        ];
        let others = decoders.map(|decoder| (load_with_decoder("pieces", &decoder).unwrap(), 305));
        [(tiny("bytes"), 290), (tiny("pieces"), 305)].into_iter().chain(others).collect()
    })
}

proptest! {
    /// A stream says exactly what decoding the whole says, whatever the ids: bytes that are no
    /// UTF-8, special tokens, ids without a token.
    #[test]
    fn a_stream_is_the_whole_decode(
        kind in 0..11_usize,
        tokens in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..60),
    ) {
        let (tokenizer, ids) = &kinds()[kind];
        // Half of the ids from the end of the list, where the words are.
        let tokens: Vec<u32> = tokens
            .iter()
            .map(|(index, words)| {
                let id = u32::try_from(index.index(*ids as usize)).unwrap();
                if *words { ids - 1 - id % 50 } else { id }
            })
            .collect();
        prop_assert_eq!(streamed(tokenizer, &tokens), tokenizer.decode(&tokens).unwrap());
    }

    /// What was said and what is pending are the text so far; a byte-level stream leaves out the bytes
    /// of an unfinished character.
    #[test]
    fn what_is_pending_completes_the_text_so_far(
        kind in 0..11_usize,
        tokens in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let (tokenizer, ids) = &kinds()[kind];
        let id = |index: &prop::sample::Index| u32::try_from(index.index(*ids as usize)).unwrap();
        let tokens: Vec<u32> = tokens.iter().map(id).collect();
        let (mut stream, mut said) = (tokenizer.stream(), String::new());
        for (i, token) in tokens.iter().enumerate() {
            said.push_str(&stream.push(*token).unwrap());
            let now = said.clone() + &stream.pending().unwrap();
            let whole = tokenizer.decode(&tokens[..=i]).unwrap();
            if kind == 0 {
                prop_assert!(whole.starts_with(&now) && whole.len() <= now.len() + 9);
            } else {
                prop_assert_eq!(now, whole);
            }
        }
    }

    /// Text that is valid comes back, and byte-level encoding loses nothing.
    #[test]
    fn byte_level_text_comes_back(text in "\\PC{0,40}") {
        let tokenizer = tiny("bytes");
        let tokens = tokenizer.encode(&text).unwrap();
        prop_assert_eq!(&tokenizer.decode(&tokens).unwrap(), &text);
        prop_assert_eq!(streamed(&tokenizer, &tokens), text);
    }

    /// Our way to decode is the library's.
    #[test]
    fn decoding_is_the_librarys(
        kind in prop::sample::select(vec!["bytes", "pieces"]),
        tokens in prop::collection::vec(0..310_u32, 0..40),
    ) {
        let path = data(&format!("tokenizer/tiny-{kind}.json"));
        let library = tokenizers::Tokenizer::from_file(path).unwrap();
        prop_assert_eq!(tiny(kind).decode(&tokens).unwrap(), library.decode(&tokens, true).unwrap());
    }

    #[test]
    fn smollm2_streams_any_ids(tokens in prop::collection::vec(0..49_160_u32, 0..80)) {
        if let Some((_, tokenizer)) = smollm2() {
            prop_assert_eq!(streamed(tokenizer, &tokens), tokenizer.decode(&tokens).unwrap());
        }
    }
}
