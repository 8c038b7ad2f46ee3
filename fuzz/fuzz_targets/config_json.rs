//! `config.json`: no input panics, and a configuration that is accepted has sizes that can be
//! multiplied and divided as the network does it.

#![no_main]

use eyrie::model::config::{Config, RopeScaling};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(declared) = Config::from_json(text) else {
        return;
    };
    let config = declared.config;
    assert!(config.heads.is_multiple_of(config.kv_heads) && config.head_dim.is_multiple_of(2));
    assert!(config.head_dim > 0 && config.layers > 0 && config.max_position > 0);
    assert!(config.eps > 0.0 && config.rope.theta.is_finite());
    for size in [
        config.vocab,
        config.intermediate,
        config.heads * config.head_dim,
    ] {
        let bytes = size
            .checked_mul(config.hidden)
            .and_then(|n| n.checked_mul(4));
        assert!(bytes.is_some_and(|bytes| bytes > 0));
    }
    if let RopeScaling::Llama3 {
        low_freq_factor,
        high_freq_factor,
        ..
    } = config.rope.scaling
    {
        assert!(low_freq_factor < high_freq_factor);
    }
    let inside = |id: &u32| (*id as usize) < config.vocab;
    assert!(declared.eos.iter().flatten().all(inside));
});
