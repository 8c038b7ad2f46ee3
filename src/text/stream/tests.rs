use super::*;

fn fed(parts: &[&[u8]]) -> (Vec<String>, Vec<u8>) {
    let mut held = Vec::new();
    let texts = parts
        .iter()
        .map(|part| {
            held.extend_from_slice(part);
            take_certain(&mut held)
        })
        .collect();
    (texts, held)
}

#[test]
fn a_character_comes_with_its_last_byte() {
    let (texts, held) = fed(&[b"a\xF0\x9F", b"\x98", b"\x80b"]);
    assert_eq!(texts, ["a", "", "\u{1F600}b"]);
    assert!(held.is_empty());
}

#[test]
fn what_can_be_no_character_is_replaced_at_once() {
    // A lone continuation, a start that is not continued, a byte that never occurs.
    let (texts, held) = fed(&[b"\x80", b"\xE2\x82", b"a", b"\xFF\xC3"]);
    assert_eq!(texts, ["\u{FFFD}", "", "\u{FFFD}a", "\u{FFFD}"]);
    assert_eq!(held, b"\xC3");
}

#[test]
fn the_alphabet_is_a_bijection() {
    assert_eq!(ALPHABET.len(), 256);
    let bytes: std::collections::HashSet<u8> = ALPHABET.values().copied().collect();
    assert_eq!(bytes.len(), 256);
    assert_eq!(ALPHABET.get(&'Ġ'), Some(&b' '));
    assert_eq!(ALPHABET.get(&'Ċ'), Some(&b'\n'));
    assert_eq!(ALPHABET.get(&' '), None);
}

#[test]
fn a_piece_outside_the_alphabet_stands_for_itself() {
    let mut out = b"x".to_vec();
    spell_bytes("Ġa", &mut out);
    spell_bytes("a b", &mut out);
    assert_eq!(out, b"x aa b");
}

#[test]
fn byte_tokens_are_recognised_by_their_form() {
    assert!(is_byte("<0x0A>"));
    assert!(is_byte("<0xff>"));
    assert!(!is_byte("<0xGG>"));
    assert!(!is_byte("<0x0A"));
    assert!(!is_byte("<0xé>"));
}
