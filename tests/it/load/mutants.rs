//! Files with bytes changed at random: refused with a reason, or read whole; never a panic.

use super::*;
use proptest::{prelude::*, sample::Index};

fn tiny() -> Fixture {
    Fixture {
        vocab: 4,
        hidden: 4,
        intermediate: 2,
        layers: 1,
        heads: 2,
        kv_heads: 1,
        head_dim: 2,
        ..td()
    }
}

fn changes() -> impl Strategy<Value = Vec<(Index, u8)>> {
    let byte = prop_oneof![Just(0), Just(0xff), Just(b'{'), Just(b'9'), any::<u8>()];
    prop::collection::vec((any::<Index>(), byte), 1..4)
}

/// Opens `path`, and if that works reads everything.
fn read_all(path: &Path) {
    match Checkpoint::open(path) {
        Err(error) => assert!(!error.problem.to_string().is_empty()),
        Ok(checkpoint) => {
            for stored in all(&checkpoint) {
                assert_eq!(stored.dtype.bytes(&stored.shape), Some(stored.bytes.len()));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn changed_gguf_headers(changes in changes()) {
        let (_dir, path) = gguf_of(&tiny(), |_| ());
        let mut bytes = fs::read(&path).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fs::write(&path, bytes).unwrap();
        read_all(&path);
    }

    #[test]
    fn changed_safetensors_headers_and_configurations(changes in changes(), which in 0..2) {
        let dir = written(&tiny());
        let path = dir.path().join(["config.json", SINGLE][which as usize]);
        let mut bytes = fs::read(&path).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fs::write(&path, bytes).unwrap();
        read_all(dir.path());
    }
}
