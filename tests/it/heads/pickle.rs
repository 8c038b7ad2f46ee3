//! `.bin` files that are broken, hostile or not what they seem.

use std::io::Cursor;

use eyrie::model::load::pickle::Header;
use eyrie_fixtures::{head::tiny, pickle::File};

use super::*;

fn read(bytes: &[u8]) -> Result<Header, String> {
    Header::read(&mut Cursor::new(bytes), bytes.len() as u64).map_err(|problem| problem.to_string())
}

#[track_caller]
fn lies(edit: impl FnOnce(&mut File), parts: &[&str]) {
    let mut file = e3().pickle();
    edit(&mut file);
    let error = read(&file.bytes()).expect_err("accepted");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

fn pickled(pickle: &[u8]) -> String {
    let file = File {
        pickle: Some(pickle.to_vec()),
        ..File::default()
    };
    read(&file.bytes()).expect_err("accepted")
}

#[test]
fn nothing_is_executed() {
    for global in [
        "posix\nsystem",
        "builtins\neval",
        "torch\nload",
        "torch.storage\n_load_from_bytes",
        "collections\ndefaultdict",
    ] {
        let dotted = global.replace('\n', ".");
        let pickle = format!("\u{2}c{global}\nX\u{2}\0\0\0id\u{1}R.").into_bytes();
        let mut bytes = vec![0x80];
        bytes.extend(&pickle);
        let error = pickled(&bytes);
        assert!(
            error.contains(&dotted) && error.contains("OrderedDict"),
            "{error}"
        );
    }
    // INST, OBJ, NEWOBJ, EXT1, STACK_GLOBAL, PERSID, REDUCE of a storage's class.
    for (opcodes, part) in [
        (&b"(iposix\nsystem\n."[..], "opcode 0x69"),
        (b"(cposix\nsystem\no.", "posix.system"),
        (b"\x81.", "opcode 0x81"),
        (b"\x82\x01.", "opcode 0x82"),
        (b"\x93.", "opcode 0x93"),
        (b"Pid\n.", "opcode 0x50"),
        (b"ctorch\nFloatStorage\n)R.", "arguments"),
        (b"ccollections\nOrderedDict\n(K\x01tR.", "arguments"),
    ] {
        let error = pickled(&[b"\x80\x02", opcodes].concat());
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn pickles_that_are_broken() {
    for (pickle, part) in [
        (&b""[..], "needs 1 bytes"),
        (b"\x80\x04.", "protocol 4"),
        (b"\x80\x02.", "nothing to work on"),
        (b"\x80\x02(.", "nothing to work on"),
        (b"\x80\x02u.", "without its mark"),
        (b"\x80\x02h\x05.", "memo 5"),
        (b"\x80\x02X\xff\xff\xff\xff", "needs 4294967295 bytes"),
        (b"\x80\x02X\x01\0\0\0\xff.", "not UTF-8"),
        (b"\x80\x02\x8a\x09000000000.", "9 bytes"),
        (b"\x80\x02N.", "None"),
        (b"\x80\x02}X\x01\0\0\0aK\x01s.", "entry \"a\""),
        (b"\x80\x02}K\x01K\x01s.", "as a key"),
        (b"\x80\x02K\x01K\x01K\x01s.", "given entries"),
        (b"\x80\x02K\x01}b.", "given a state"),
        (b"\x80\x02K\x01Q.", "no storage"),
    ] {
        let error = pickled(pickle);
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    let nested = [b"\x80\x02)".to_vec(), vec![0x85; 1 << 19], b".".to_vec()].concat();
    assert!(pickled(&nested).contains("a tuple"));
    let many = [
        b"\x80\x02".to_vec(),
        vec![b'N'; (1 << 20) + 1],
        b".".to_vec(),
    ]
    .concat();
    assert!(pickled(&many).contains("number of objects"));
    let large = vec![b'N'; (1 << 24) + 1];
    assert!(pickled(&large).contains("length of entry"));
}

#[test]
fn storages_and_strides_that_lie() {
    lies(
        |file| file.tensors[0].count += 1,
        &["fc.weight", "49152 bytes", "49156"],
    );
    lies(|file| file.tensors[0].count = -1, &["no storage"]);
    lies(
        |file| file.storages[0].1.truncate(8),
        &["fc.weight", "8 bytes"],
    );
    lies(
        |file| file.tensors[0].key = "../data.pkl".to_owned(),
        &["data/../data.pkl"],
    );
    lies(
        |file| file.tensors[0].class = "DoubleStorage".to_owned(),
        &["torch.DoubleStorage"],
    );
    lies(
        |file| file.tensors[0].class = "HalfStorage".to_owned(),
        &["fc.weight", "24576"],
    );
    lies(
        |file| file.tensors[0].strides = vec![1, 64],
        &["strides of tensor fc.weight", "contiguous"],
    );
    lies(|file| file.tensors[0].strides = vec![0, 0], &["strides"]);
    lies(|file| file.tensors[0].strides = vec![1], &["arguments"]);
    lies(
        |file| file.tensors[0].offset = 1,
        &["fc.weight lies at bytes 4..49156"],
    );
    lies(|file| file.tensors[0].offset = -1, &["arguments"]);
    lies(
        |file| file.tensors[0].shape = vec![0, 192],
        &["dimensions of at least 1"],
    );
    lies(
        |file| file.tensors[0].shape = vec![i32::MAX, i32::MAX],
        &["fc.weight"],
    );
    lies(
        |file| {
            let shape = vec![i32::MAX; 4];
            file.tensors[0].strides = vec![1; 4];
            file.tensors[0].shape = shape;
        },
        &["fc.weight", "counted"],
    );
    lies(
        |file| (file.tensors[0].shape, file.tensors[0].strides) = (vec![1; 5], vec![1; 5]),
        &["at most 4 dimensions"],
    );
    lies(
        |file| {
            let mut view = file.tensors[0].clone();
            (view.name, view.shape, view.offset) = ("view".to_owned(), vec![63, 192], 192);
            file.tensors.push(view);
        },
        &["view", "inside tensor fc.weight"],
    );
    lies(
        |file| file.tensors[1].name = "fc.weight".to_owned(),
        &["fc.weight is given twice"],
    );
    lies(|file| drop(file.tensors.pop()), &["data/14", "no tensor"]);

    let mut shared = e3().pickle();
    let mut same = shared.tensors[0].clone();
    same.name = "same".to_owned();
    shared.tensors.push(same);
    let header = read(&shared.bytes()).unwrap();
    assert_eq!(header.tensors["same"], header.tensors["fc.weight"]);
}

#[test]
fn archives_that_lie() {
    lies(|file| file.method = 8, &["compressed"]);
    lies(
        |file| file.entries[1].1 = b"big".to_vec(),
        &["byteorder is big"],
    );
    lies(
        |file| file.entries[0].1 = b"99".to_vec(),
        &["version is 99"],
    );
    lies(
        |file| file.entries.push(("code/x.py".to_owned(), vec![1])),
        &["code/x.py"],
    );
    lies(
        |file| file.entries.push(("../x/data.pkl".to_owned(), vec![1])),
        &["data.pkl"],
    );
    assert!(read(b"PK").unwrap_err().contains("has 2 bytes"));
    assert!(
        read(b"\x80\x02\x8a\nl\xfc\x9cF")
            .unwrap_err()
            .contains("before 1.6")
    );
    assert!(
        read(b"PK\x03\x04 nothing more")
            .unwrap_err()
            .contains("zip archive")
    );
    let bytes = e3().pickle().bytes();
    for cut in (0..bytes.len())
        .step_by(997)
        .chain(bytes.len() - 40..bytes.len())
    {
        assert!(read(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

/// Bytes of the directory are changed one by one: an error, or the same tensors within the file.
#[test]
fn no_byte_of_an_archive_is_trusted() {
    let head = tiny();
    let bytes = head.pickle().bytes();
    read(&bytes).unwrap();
    for at in 0..bytes.len() {
        for value in [0, 0xff, bytes[at] ^ 1] {
            let mut spoiled = bytes.clone();
            spoiled[at] = value;
            if let Ok(header) = read(&spoiled) {
                for info in header.tensors.values() {
                    assert!(info.begin + info.bytes as u64 <= bytes.len() as u64);
                }
            }
        }
    }
}
