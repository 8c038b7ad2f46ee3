//! What kills or hangs other engines, and requests that cannot be served: each ends alone, beside
//! others that are answered as ever, and leaves nothing behind.

use std::sync::Arc;

use candle_core::{Device, Tensor};
use either::Either;
use eyrie_fixtures::{table, tokenizer};
use eyrie_host_client::{Behaviour, Expect};
use eyrie_mistralrs::EyrieLoader;
use mistralrs_core::{
    Constraint, CustomLogitsProcessor, DetokenizationRequest, DeviceMapSetting, IsqType, Loader,
    ModelDType, NormalRequest, PagedAttentionConfig, Request, RequestMessage, StopTokens,
    TokenSource,
};
use serde_json::json;

use crate::{
    in_process::{Answer, ask, completion, of, send, wait},
    support::{DRAFTERS, Host, Models, NAME, PLAIN},
};

const GOOD: &str = "the rain in the sea ";

/// A host, and what it says to [`GOOD`].
struct Bench {
    host: Host,
    good: String,
}

impl Bench {
    async fn new(models: Models, flags: &[&str]) -> Self {
        let host = Host::start(models, flags).await;
        let good = ask(&host.host, PLAIN, completion(GOOD)).await;
        let good = good.text().to_owned();
        Self { host, good }
    }

    async fn tt() -> Self {
        Self::new(Models::tt(), DRAFTERS[1].1).await
    }

    async fn is_fine(&self, when: &str) {
        let answer = ask(&self.host.host, NAME, completion(GOOD)).await;
        assert_eq!(answer.text(), self.good, "{when}");
    }

    /// Sends `request` between two good ones.
    async fn case(&self, name: &str, request: NormalRequest) -> Answer {
        let good = || ask(&self.host.host, NAME, completion(GOOD));
        let (a, answer, b) = tokio::join!(good(), ask(&self.host.host, NAME, request), good());
        assert_eq!((a.text(), b.text()), (&*self.good, &*self.good), "{name}");
        self.is_fine(name).await;
        answer
    }

    async fn is_empty(&self) {
        self.host.is_empty().await;
    }
}

/// A greedy request of 12 tokens, the prompt is six.
fn with(change: impl FnOnce(&mut NormalRequest)) -> NormalRequest {
    let mut request = completion("abc abc");
    request.sampling_params.logits_bias = Some([(2, -100.0)].into());
    change(&mut request);
    request
}

fn tokens(count: usize) -> NormalRequest {
    of(RequestMessage::CompletionTokens(vec![5; count]))
}

/// Tokens of an answer with one choice.
#[track_caller]
fn count(answer: &Answer) -> usize {
    match answer {
        Answer::Done(done) => done.usage.completion_tokens,
        other => panic!("no answer: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave() {
    let bench = Bench::tt().await;
    let long = |stream: bool, n: usize| {
        with(|request| {
            request.sampling_params.max_len = Some(200);
            request.sampling_params.n_choices = n;
            request.sampling_params.temperature = Some(1.0);
            request.is_streaming = stream;
        })
    };
    for (stream, n) in [(false, 1), (false, 3), (true, 1), (true, 3)] {
        for chunks in 0..3 {
            let mut receiver = send(&bench.host.host, NAME, long(stream, n)).await;
            for _ in 0..chunks {
                if stream {
                    receiver.recv().await.expect("a chunk");
                } else {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            }
            drop(receiver);
            bench.is_fine("a client has left").await;
        }
    }
    let request = eyrie_host_client::Request::chat("leaves", "go on");
    let mut request = request.with("max_tokens", 200).with("temperature", 1.0);
    request.expect = Expect::Gone;
    for (client, stream) in [
        (Behaviour::Cancel(2), true),
        (Behaviour::Disconnect(3), true),
        (Behaviour::Disconnect(3), false),
    ] {
        request.client = client;
        let request = request.clone().with("stream", stream).with("n", 4);
        bench.host.one(NAME, &request).await;
        bench.is_fine("an HTTP client has left").await;
    }
    bench.is_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_refused_by_name() {
    let bench = Bench::tt().await;
    let raw = with(|request| request.return_raw_logits = true);
    let answer = bench.case("raw logits", raw).await;
    assert!(answer.reason().contains("return_raw_logits"), "{answer:?}");

    let answer = bench
        .case("no choice", with(|r| r.sampling_params.n_choices = 0))
        .await;
    assert!(answer.reason().contains("choices"), "{answer:?}");
    let nan = with(|request| request.sampling_params.temperature = Some(f64::NAN));
    let answer = bench.case("temperature", nan).await;
    assert!(answer.reason().contains("temperature"), "{answer:?}");
    let bias = with(|request| {
        request.sampling_params.logits_bias = Some([(70, 1.0)].into());
    });
    let answer = bench.case("a bias of nothing", bias).await;
    assert!(answer.reason().contains("logit_bias 70"), "{answer:?}");
    let answer = bench
        .case(
            "unknown tokens",
            of(RequestMessage::CompletionTokens(vec![90])),
        )
        .await;
    assert!(answer.reason().contains("90"), "{answer:?}");
    let answer = bench.case("an empty prompt", completion("")).await;
    assert!(answer.reason().contains("empty prompt"), "{answer:?}");

    let message = [
        ("role".to_owned(), Either::Left("user".to_owned())),
        ("content".to_owned(), Either::Left("what is it?".to_owned())),
    ];
    let image = of(RequestMessage::MultimodalChat {
        images: vec![image::DynamicImage::new_rgb8(1, 1)],
        audios: Vec::new(),
        videos: Vec::new(),
        messages: vec![message.into_iter().collect()],
        enable_thinking: None,
        reasoning_effort: None,
    });
    let answer = bench.case("an image", image).await;
    assert!(answer.reason().contains("images"), "{answer:?}");
    let part = [("type".to_owned(), json!("image_url"))];
    let message = [
        ("role".to_owned(), Either::Left("user".to_owned())),
        (
            "content".to_owned(),
            Either::Right(vec![part.into_iter().collect()]),
        ),
    ];
    let part = of(RequestMessage::Chat {
        messages: vec![message.into_iter().collect()],
        enable_thinking: None,
        reasoning_effort: None,
    });
    let answer = bench.case("a part of a message", part).await;
    assert!(answer.reason().contains("images: image_url"), "{answer:?}");
    bench.is_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lengths_at_the_limits() {
    let bench = Bench::tt().await;
    let long = |mut request: NormalRequest| {
        request.sampling_params.max_len = None;
        request.sampling_params.logits_bias = Some([(2, -100.0)].into());
        request
    };
    for (prompt, expected) in [(256, 1), (255, 2), (250, 7)] {
        let answer = bench.case("a full context", long(tokens(prompt))).await;
        assert_eq!(count(&answer), expected, "{answer:?}");
    }
    let answer = bench.case("beyond the context", tokens(257)).await;
    assert!(answer.reason().contains("256"), "{answer:?}");
    let mut cut = tokens(300);
    cut.truncate_sequence = true;
    cut.sampling_params.logits_bias = Some([(2, -100.0)].into());
    let answer = bench.case("truncated", cut).await;
    assert_eq!(count(&answer), 12, "{answer:?}");
    for (most, expected) in [(0, 1), (1, 1), (2, 2)] {
        let answer = bench
            .case("few", with(|r| r.sampling_params.max_len = Some(most)))
            .await;
        assert_eq!(count(&answer), expected, "{answer:?}");
        let streamed = with(|request| {
            request.sampling_params.max_len = Some(most);
            request.is_streaming = true;
        });
        let mut receiver = send(&bench.host.host, NAME, streamed).await;
        let mut chunks = 0;
        while let Some(chunk) = receiver.recv().await {
            assert!(matches!(
                chunk,
                mistralrs_core::Response::CompletionChunk(_)
            ));
            chunks += 1;
        }
        assert_eq!(chunks, expected, "at most {most} tokens");
    }
    bench.is_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_smaller_than_its_requests() {
    let bench = Bench::new(Models::tt(), &["--kv-tokens", "40", "--drafter", "ngram"]).await;
    let answer = bench.case("a long prompt", tokens(41)).await;
    assert!(answer.reason().contains("kv_tokens 40"), "{answer:?}");
    let mut long = tokens(35);
    long.sampling_params.max_len = Some(100);
    long.sampling_params.logits_bias = Some([(2, -100.0)].into());
    let answer = bench.case("a long answer", long).await;
    assert!(answer.reason().contains("kv-tokens"), "{answer:?}");
    // More than fit at once take turns.
    let many =
        futures::future::join_all((0..8).map(|_| ask(&bench.host.host, NAME, completion(GOOD))));
    for answer in many.await {
        assert_eq!(answer.text(), bench.good);
    }
    bench.is_empty().await;
}

/// Does something at the fifth token.
fn at_the_fifth(
    what: fn(&Tensor) -> candle_core::Result<Tensor>,
) -> Option<Vec<Arc<dyn CustomLogitsProcessor>>> {
    let apply = move |logits: &Tensor, context: &[u32]| {
        let prompt = 6;
        if context.len() < prompt + 4 {
            return Ok(logits.clone());
        }
        what(logits)
    };
    Some(vec![Arc::new(apply)])
}

#[tokio::test(flavor = "multi_thread")]
async fn logits_processors_that_fail() {
    let bench = Bench::tt().await;
    type Change = fn(&Tensor) -> candle_core::Result<Tensor>;
    let cases: [(&str, Change, &str); 5] = [
        ("panics", |_| panic!("by design"), "panicked: by design"),
        ("fails", |_| candle_core::bail!("no idea"), "no idea"),
        ("is short", |logits| logits.narrow(0, 0, 3), "3 logits of"),
        ("is a matrix", |logits| logits.unsqueeze(0), "rank"),
        ("is no number", |logits| logits.affine(f64::NAN, 0.0), ""),
    ];
    for (name, change, reason) in cases {
        let request = with(|request| request.logits_processors = at_the_fifth(change));
        let answer = bench.case(name, request).await;
        assert!(answer.reason().contains(reason), "{name}: {answer:?}");
    }
    let all_masked = with(|request| {
        request.logits_processors =
            at_the_fifth(|logits| Tensor::full(f32::NEG_INFINITY, logits.shape(), &Device::Cpu));
    });
    let answer = bench.case("masks everything", all_masked).await;
    assert!(!answer.reason().is_empty());
    bench.is_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grammars_that_cannot_be() {
    let bench = Bench::tt().await;
    let constraints = [
        Constraint::Regex("(".to_owned()),
        Constraint::Lark("start: other".to_owned()),
        Constraint::JsonSchema(json!({"type": "string", "enum": []})),
        // Bytes that no token has: what is forced is spelt with the unknown token.
        Constraint::Regex("\u{c4}{3}".to_owned()),
        Constraint::Regex("abc\u{c4}".to_owned()),
        Constraint::JsonSchema(json!({"allOf": [{"type": "string"}, {"type": "number"}]})),
        Constraint::Lark("start: /([a-z]{1,900}[0-9]{1,900}){1,900}(x|y)/".to_owned()),
    ];
    for (at, constraint) in constraints.into_iter().enumerate() {
        let request = with(|request| {
            request.constraint = constraint;
            request.return_logprobs = true;
        });
        let answer = bench.case(&format!("grammar {at}"), request).await;
        if at < 3 {
            assert!(!answer.reason().is_empty(), "grammar {at}: {answer:?}");
        }
        if at == 3 || at == 4 {
            let reason = answer.reason();
            let named = reason.starts_with("grammar: the grammar cannot go on: ");
            let short = reason.len() < 240 && !reason.contains('\n');
            assert!(named && short, "grammar {at}: {reason}");
        }
        assert!(!matches!(answer, Answer::Nothing), "grammar {at}");
    }
    bench.is_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_seldom_asked_for() {
    let bench = Bench::tt().await;
    let of = |best_of, echo_prompt| RequestMessage::Completion {
        text: "abc abc".to_owned(),
        echo_prompt,
        best_of,
    };
    let plain = bench.case("plain", with(|_| ())).await;
    let best = with(|request| {
        request.messages = of(Some(2), false);
        request.sampling_params.n_choices = 4;
        request.sampling_params.temperature = Some(1.0);
    });
    let Answer::Done(best) = bench.case("the best of four", best).await else {
        panic!("no answer");
    };
    assert_eq!(best.choices.len(), 2);
    assert_eq!(best.usage.completion_tokens, 48);
    let echo = bench
        .case("an echo", with(|r| r.messages = of(None, true)))
        .await;
    assert_eq!(echo.text(), format!("abc abc{}", plain.text()));
    let suffix = bench
        .case("a suffix", with(|r| r.suffix = Some(" end".to_owned())))
        .await;
    assert_eq!(suffix.text(), format!("{} end", plain.text()));
    let stop =
        |stops: Vec<String>| with(|r| r.sampling_params.stop_toks = Some(StopTokens::Seqs(stops)));
    let empty = bench.case("an empty stop", stop(vec![String::new()])).await;
    assert_eq!((empty.text(), count(&empty)), ("", 1));
    let many = (0..5_000).map(|at| format!("q{at}q")).collect();
    let many = bench.case("thousands of stops", stop(many)).await;
    assert_eq!(many.text(), plain.text());
    let all = with(|request| {
        request.return_logprobs = true;
        request.sampling_params.top_n_logprobs = 1_000_000;
    });
    let Answer::Done(all) = bench.case("all log-probabilities", all).await else {
        panic!("no answer");
    };
    let logprobs = all.choices[0]
        .logprobs
        .as_ref()
        .and_then(|l| l.content.as_ref());
    let logprobs = logprobs.expect("they were asked for");
    assert_eq!(logprobs.len(), 12);
    assert!(
        logprobs
            .iter()
            .all(|l| l.top_logprobs.len() == tokenizer::TOKENS)
    );
    bench.is_empty().await;
}

/// The engine's thread ends in the middle of requests, or panics outside of the pipeline; the next
/// request starts another over the same pipeline, whose sequences are numbered from 0 again.
#[tokio::test(flavor = "multi_thread")]
async fn engines_that_start_again() {
    let bench = Bench::tt().await;
    let deaths: [fn() -> Request; 3] = [
        || Request::Terminate,
        || {
            let (response, _) = tokio::sync::mpsc::channel(1);
            Request::Detokenize(DetokenizationRequest {
                tokens: vec![5],
                skip_special_tokens: false,
                response,
            })
        },
        || {
            let (response, _) = tokio::sync::mpsc::channel(1);
            let mut request = completion("abc");
            request.response = response;
            request.sampling_params.stop_toks = Some(StopTokens::Ids(vec![9_999]));
            Request::Normal(Box::new(request))
        },
    ];
    for death in deaths {
        let long = || {
            with(|request| {
                request.sampling_params.max_len = Some(240);
                request.sampling_params.temperature = Some(1.0);
                request.sampling_params.logits_bias = Some([(2, -100.0)].into());
            })
        };
        let mut lost = Vec::new();
        for _ in 0..3 {
            lost.push(send(&bench.host.host, NAME, long()).await);
        }
        let engine = bench.host.host.get_sender(Some(NAME)).expect("an engine");
        engine.send(death()).await.expect("it lives");
        for receiver in &mut lost {
            let answer = wait(receiver).await;
            assert!(
                matches!(answer, Answer::Nothing | Answer::Done(_)),
                "{answer:?}"
            );
        }
        // Until the thread has ended, requests go to it and are lost.
        let mut tries = 0..60;
        while tries.next().is_some() {
            let again = ask(&bench.host.host, NAME, completion(GOOD));
            let again = tokio::time::timeout(std::time::Duration::from_secs(1), again).await;
            if again.is_ok_and(|answer| matches!(answer, Answer::Done(_))) {
                break;
            }
        }
        bench.is_fine("after a death").await;
        bench.is_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn loads_that_are_refused() {
    let models = Models::tt();
    let loader = EyrieLoader::new(models.options(&[]));
    let load =
        |isq: Option<IsqType>, paged: Option<PagedAttentionConfig>, revision: Option<&str>| {
            let loaded = loader.load_model_from_hf(
                revision.map(str::to_owned),
                TokenSource::None,
                &ModelDType::Auto,
                &Device::Cpu,
                true,
                DeviceMapSetting::dummy(),
                isq,
                paged,
            );
            loaded.map(drop).map_err(|error| error.to_string())
        };
    let paged = PagedAttentionConfig::new(
        None,
        mistralrs_core::MemoryGpuConfig::ContextSize(64),
        mistralrs_core::PagedCacheType::Auto,
    );
    let paged = load(None, Some(paged.expect("a configuration")), None);
    assert!(paged.is_err_and(|error| error.contains("paged_attn_config")));
    let isq = load(Some(IsqType::Q4_0), None, None);
    assert!(isq.is_err_and(|error| error.contains("in_situ_quant")));
    let revision = load(None, None, Some("main"));
    assert!(revision.is_err_and(|error| error.contains("revision main")));
    assert_eq!(load(None, None, None), Ok(()));
}

/// A model whose logits are no numbers once it has said `b`: the embedding of `b` is none.
fn nan() -> Models {
    let size = 60;
    let row = |last: usize| (0..size).map(move |next| f32::from(u8::from(next == last + 1)) * 9.0);
    let rows: Vec<Vec<f32>> = (0..size).map(|last| row(last).collect()).collect();
    let models = Models::of(&table(&rows));
    let path = models.path().join("target/model.safetensors");
    let mut bytes = std::fs::read(&path).expect("a file");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight"));
    let length = usize::try_from(length).expect("a small number");
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).expect("JSON");
    let begin = header["model.embed_tokens.weight"]["data_offsets"][0].as_u64();
    let begin = usize::try_from(begin.expect("a number")).expect("a small number");
    let at = 8 + length + begin + 5 * size * 4;
    for value in bytes[at..at + size * 4].chunks_mut(4) {
        value.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    std::fs::write(path, bytes).expect("it is written");
    models
}

#[tokio::test(flavor = "multi_thread")]
async fn logits_that_are_no_numbers() {
    let bench = Bench::new(nan(), &["--drafter", "ngram"]).await;
    let answer = bench.case("no numbers", completion("a")).await;
    let reason = answer.reason();
    assert!(
        reason.contains("finite") && reason.contains('2'),
        "{reason}"
    );
    let answer = bench.case("from the prompt on", completion("ab")).await;
    assert!(answer.reason().contains("finite"), "{answer:?}");
    bench.is_empty().await;
}

/// A model that says bytes which are no text before a stop.
#[tokio::test(flavor = "multi_thread")]
async fn stops_behind_bytes_that_are_no_text() {
    // Byte 0xC3 alone, between a and b; then c and d.
    let (size, byte) = (64, 60);
    let mut rows = vec![vec![0.0; size]; size];
    for (last, next) in [(4, byte), (byte, 5), (5, 6), (6, 7), (7, 4)] {
        rows[last][next] = 9.0;
    }
    let models = Models::of(&table(&rows));
    let path = models.path().join("target/tokenizer.json");
    let mut tokenizer = tokenizer::json(&[]);
    tokenizer["model"]["vocab"]["\u{c3}"] = byte.into();
    std::fs::write(&path, tokenizer.to_string()).expect("it is written");
    let bench = Bench::new(models, &["--drafter", "ngram"]).await;
    for (stops, text, tokens) in [
        (vec!["bc"], "\u{fffd}", 4),
        (vec!["d", "cd"], "\u{fffd}bc", 4),
        (vec!["dq", "c"], "\u{fffd}b", 3),
        (vec!["dab", "q"], "\u{fffd}bcda\u{fffd}bcda\u{fffd}b", 12),
        (vec!["da"], "\u{fffd}bc", 6),
    ] {
        let request = with(|request| {
            let RequestMessage::Completion { text, .. } = &mut request.messages else {
                unreachable!("a completion")
            };
            *text = "a".to_owned();
            let stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
            request.sampling_params.stop_toks = Some(StopTokens::Seqs(stops));
        });
        let answer = bench.case("bytes that are no text", request).await;
        assert_eq!((answer.text(), count(&answer)), (text, tokens), "{stops:?}");
    }
    bench.is_empty().await;
}

/// All engines of a process obey it: it has one of its own.
#[tokio::test(flavor = "multi_thread")]
async fn all_sequences_end_when_they_are_told_to() {
    if std::env::var_os(ALONE).is_some() {
        all_are_told_to_end().await;
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let ran = std::process::Command::new(program)
        .args([
            "--exact",
            "survives::all_sequences_end_when_they_are_told_to",
        ])
        .env(ALONE, "1")
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && text.contains("1 passed"), "{text}");
}

/// Set for the process that has the host's flag for itself.
const ALONE: &str = "EYRIE_TEST_ALONE";

async fn all_are_told_to_end() {
    let bench = Bench::tt().await;
    for stream in [false, true] {
        let long = || {
            with(|request| {
                request.sampling_params.max_len = Some(240);
                request.sampling_params.logits_bias = Some([(2, -100.0)].into());
                request.is_streaming = stream;
            })
        };
        let mut receivers = Vec::new();
        for _ in 0..3 {
            receivers.push(send(&bench.host.host, NAME, long()).await);
        }
        let engine = bench.host.host.get_sender(Some(NAME)).expect("an engine");
        engine
            .send(Request::TerminateAllSeqsNextStep)
            .await
            .expect("it lives");
        for receiver in &mut receivers {
            match wait(receiver).await {
                Answer::Done(done) => {
                    assert_eq!(done.choices[0].finish_reason, "canceled");
                    assert!(done.usage.completion_tokens < 240);
                }
                Answer::Nothing => assert!(stream),
                other @ Answer::Failed(_) => panic!("{other:?}"),
            }
        }
        bench.is_fine("all were ended").await;
        bench.is_empty().await;
    }
}
