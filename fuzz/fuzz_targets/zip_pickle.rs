//! `.bin` files: no input panics or asks for memory beyond its length; what is accepted lies in the
//! file. An input is taken as an archive, and as the pickle of one.

#![no_main]

use std::io::Cursor;

use eyrie::model::load::pickle::Header;
use eyrie_fixtures::pickle::File;
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    let len = bytes.len() as u64;
    if let Ok(header) = Header::read(&mut Cursor::new(bytes), len) {
        for info in header.tensors.values() {
            assert_eq!(info.dtype.bytes(&info.shape), Some(info.bytes));
            assert!(info.begin + info.bytes as u64 <= len);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    check(data);
    let pickle = Some(data.to_vec());
    let storages = vec![("0".to_owned(), vec![0; 16])];
    check(
        &File {
            pickle,
            storages,
            ..File::default()
        }
        .bytes(),
    );
});
