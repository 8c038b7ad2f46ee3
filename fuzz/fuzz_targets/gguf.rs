//! GGUF headers: no input panics or asks for memory beyond its length; what is accepted lies in the
//! file, aligned and pairwise apart; and a configuration read from it is one that could be built.

#![no_main]

use eyrie::model::{config::Config, load::gguf::Header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let len = data.len() as u64;
    let Ok(header) = Header::read(&mut &data[..], len) else {
        return;
    };
    let alignment = header
        .metadata
        .uint("general.alignment")
        .unwrap()
        .unwrap_or(32);
    assert!(header.data.is_multiple_of(alignment));
    for (i, a) in header.tensors.iter().enumerate() {
        let end = a.begin + a.bytes as u64;
        assert!(a.begin.is_multiple_of(alignment) && header.data + end <= len);
        assert_eq!(a.dtype.bytes(&a.shape), Some(a.bytes));
        for b in &header.tensors[..i] {
            assert!(b.begin + b.bytes as u64 <= a.begin || end <= b.begin);
            assert_ne!(a.name, b.name);
        }
    }
    if let Ok(declared) = Config::from_gguf(&header.metadata, 64, None) {
        assert!(
            declared
                .config
                .heads
                .is_multiple_of(declared.config.kv_heads)
        );
        assert!(declared.config.head_dim.is_multiple_of(2));
    }
});
