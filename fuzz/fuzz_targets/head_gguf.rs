//! GGUF heads: no input panics, and metadata that is accepted is resolved without a panic either.

#![no_main]

use eyrie::{
    draft::eagle::{
        HeadOptions, TargetFacts,
        load::{Declared, Maps, Shapes},
    },
    model::load::gguf::Header,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(header) = Header::read(&mut &data[..], data.len() as u64) else {
        return;
    };
    let Ok(declared) = Declared::from_gguf(&header.metadata, None) else {
        return;
    };
    let target = TargetFacts {
        hidden: 4,
        layers: 7,
        vocab: 4,
        tied: false,
    };
    let shapes: Shapes = header
        .tensors
        .into_iter()
        .map(|info| (info.name, info.shape))
        .collect();
    let maps = Maps {
        absolute: true,
        ..Maps::default()
    };
    if let Ok(resolved) = declared.resolve(&shapes, &maps, &target, &HeadOptions::default()) {
        assert!(resolved.config.feature.taps().iter().all(|tap| *tap <= 7));
        let _ = resolved.check(&shapes);
    }
});
