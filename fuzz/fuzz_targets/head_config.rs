//! `config.json` of heads: no input panics, and what is accepted is resolved against the tensors of
//! a small head without a panic either.

#![no_main]

use std::collections::BTreeMap;

use eyrie::draft::eagle::{
    HeadOptions, TargetFacts,
    load::{Declared, Maps, Shapes},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(declared) = Declared::from_json(text) else {
        return;
    };
    let target = TargetFacts {
        hidden: 4,
        layers: 7,
        vocab: 4,
        tied: true,
    };
    let shapes: Shapes = BTreeMap::from([
        ("fc.weight".to_owned(), vec![4, 12]),
        ("layers.0.hidden_norm.weight".to_owned(), vec![4]),
    ]);
    for shapes in [&shapes, &Shapes::new()] {
        let resolved =
            declared
                .clone()
                .resolve(shapes, &Maps::default(), &target, &HeadOptions::default());
        if let Ok(resolved) = resolved {
            let config = &resolved.config;
            assert!(
                config.heads.is_multiple_of(config.kv_heads) && config.head_dim.is_multiple_of(2)
            );
            assert!(config.max_position > 0 && config.eps > 0.0 && config.rope.theta.is_finite());
            assert!(config.feature.taps().iter().all(|tap| *tap <= 7));
            assert_eq!(config.sliding_window.len(), config.layers);
            let _ = resolved.check(shapes);
        }
    }
});
