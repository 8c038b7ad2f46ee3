//! The index and the header of safetensors: no input panics; a shard's name never leaves its
//! directory; and a header that we accept is accepted by the safetensors crate, with the same
//! tensors at the same places.

#![no_main]

use std::path::{Component, Path};

use eyrie::model::load::safetensors::{Header, Index};
use libfuzzer_sys::fuzz_target;
use safetensors::SafeTensors;

fuzz_target!(|data: &[u8]| {
    if let Some(index) = std::str::from_utf8(data)
        .ok()
        .and_then(|text| Index::parse(text).ok())
    {
        for shard in index.shards() {
            let parts: Vec<_> = Path::new(shard).components().collect();
            assert!(matches!(parts[..], [Component::Normal(_)]), "{shard:?}");
        }
    }
    let Ok(header) = Header::read(&mut &data[..], data.len() as u64) else {
        return;
    };
    let (size, theirs) = SafeTensors::read_metadata(data).expect("ours is the stricter reader");
    assert_eq!(header.data, size as u64 + 8);
    assert_eq!(header.tensors.len(), theirs.tensors().len());
    for (name, ours) in &header.tensors {
        let info = theirs.info(name).expect("the same names");
        assert_eq!(info.shape, ours.shape);
        assert_eq!(info.data_offsets.0 as u64, ours.begin);
        assert_eq!(info.data_offsets.1 - info.data_offsets.0, ours.bytes);
    }
});
