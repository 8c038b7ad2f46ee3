//! Request lines: no input panics, a line that is accepted holds what it shows of itself, and one
//! that was accepted can be resolved or is refused by a field's name.

#![no_main]

use eyrie::request::{RequestSpec, Resolver};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    let id = RequestSpec::id_of(line);
    let Ok(spec) = RequestSpec::from_line(line) else {
        return;
    };
    assert_eq!(spec.id, id);

    // What a spec shows of itself, without what it leaves open, is again a line of the same spec.
    let mut shown = serde_json::to_value(&spec).expect("a spec can be shown");
    let fields = shown.as_object_mut().expect("as an object");
    fields.retain(|_, value| !value.is_null());
    let again = RequestSpec::from_line(&shown.to_string()).expect("what it shows is accepted");
    assert_eq!(again, spec);

    let resolver = Resolver {
        tokenizer: None,
        chat: None,
        valid: 64,
        context: 256,
        kv_tokens: 128,
    };
    match resolver.resolve(&spec, "1", 0) {
        Ok(request) => assert!((1..=128).contains(&request.prompt.len())),
        Err(error) => assert!(error.field().is_some(), "{error}"),
    }
});
