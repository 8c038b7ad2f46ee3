//! What the server lets through to the host's handlers.

use axum::{
    Json,
    body::{Body, to_bytes},
    extract::Request,
    http::{Method, StatusCode},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

/// Most choices of a request: the host makes a sequence for each before a pipeline sees one.
pub(crate) const MOST_CHOICES: u64 = 128;

/// Most bytes of a request's body, as the host's own limit.
pub(crate) const MOST_BYTES: usize = 50 << 20;

const SERVED: [&str; 7] = [
    "/",
    "/health",
    "/metrics",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/models",
    "/v1/responses",
];
/// What is behind it is the number of a response, or that and an action.
const RESPONSES: &str = "/v1/responses/";

/// Parts of a message that are not text, with what they are called.
const MEDIA: [(&str, &str); 7] = [
    ("image_url", "images"),
    ("input_image", "images"),
    ("audio_url", "audios"),
    ("input_audio", "audios"),
    ("video_url", "videos"),
    ("input_video", "videos"),
    ("input_file", "files"),
];

/// Answers what is not served with 404, and what the host would act on before a pipeline can refuse it
/// with 422.
pub(crate) async fn gate(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !SERVED.contains(&path) && !path.starts_with(RESPONSES) {
        return refuse(StatusCode::NOT_FOUND, format!("{path}: not served"));
    }
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, MOST_BYTES).await else {
        let reason = format!("the body: at most {MOST_BYTES} bytes");
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, reason);
    };
    // What is not JSON is refused by the host's handlers, in their words.
    let asked = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    match fault(&asked) {
        Some(reason) => refuse(StatusCode::UNPROCESSABLE_ENTITY, reason),
        None => {
            next.run(Request::from_parts(parts, Body::from(bytes)))
                .await
        }
    }
}

/// The host's form of an error.
fn refuse(status: StatusCode, message: String) -> Response {
    (status, Json(json!({"message": message}))).into_response()
}

/// Why a request is refused.
fn fault(asked: &Value) -> Option<String> {
    for name in ["n", "best_of"] {
        if let Some(count) = asked[name].as_u64()
            && !(1..=MOST_CHOICES).contains(&count)
        {
            return Some(format!("{name} {count}: from 1 to {MOST_CHOICES} choices"));
        }
    }
    let messages = ["messages", "input"].map(|name| asked[name].as_array());
    let messages = messages.into_iter().flatten().flatten();
    let mut parts = messages.flat_map(|message| match message["content"].as_array() {
        Some(parts) => parts.as_slice(),
        None => std::slice::from_ref(message),
    });
    parts.find_map(|part| medium(|key| part.get(key)?.as_str(), |key| part.get(key).is_some()))
}

/// Why a part of a message is refused: of its strings and of its keys.
pub(crate) fn medium<'a>(
    string: impl Fn(&str) -> Option<&'a str>,
    has: impl Fn(&str) -> bool,
) -> Option<String> {
    let own = |name: &str| string("type") == Some(name) || has(name);
    let found = MEDIA.iter().find(|(part, _)| own(part));
    found.map(|(part, name)| {
        format!("{name}: {part} in a message; Eyrie's pipeline decodes text and accepts no other")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_choices() {
        for fine in [json!({}), json!({"n": 1}), json!({"n": 128, "best_of": 1})] {
            assert_eq!(fault(&fine), None, "{fine}");
        }
        for (wrong, name) in [
            (json!({"n": 0}), "n 0"),
            (json!({"n": 129}), "n 129"),
            (json!({"n": u64::MAX}), "n 18446744073709551615"),
            (json!({"n": 2, "best_of": 0}), "best_of 0"),
            (json!({"best_of": 1000}), "best_of 1000"),
        ] {
            let reason = fault(&wrong).unwrap_or_default();
            assert!(reason.starts_with(name), "{wrong}: {reason}");
        }
    }

    #[test]
    fn parts_that_are_no_text() {
        let text = json!([{"role": "user", "content": [{"type": "text", "text": "image_url"}]}]);
        assert_eq!(fault(&json!({"messages": text})), None);
        for (part, name) in [
            (
                json!({"type": "image_url", "image_url": {"url": "x"}}),
                "images",
            ),
            (json!({"image_url": {"url": "x"}}), "images"),
            (json!({"type": "input_image", "image_data": "x"}), "images"),
            (json!({"type": "input_audio"}), "audios"),
            (json!({"type": "video_url"}), "videos"),
        ] {
            let message = json!([{"role": "user", "content": [part]}]);
            for field in ["messages", "input"] {
                let reason = fault(&json!({field: message})).unwrap_or_default();
                assert!(reason.starts_with(name), "{part}: {reason}");
            }
        }
    }
}
