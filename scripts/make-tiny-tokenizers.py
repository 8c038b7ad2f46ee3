#!/usr/bin/env python3
"""Makes tests/data/tokenizer/tiny-*.json: small tokenizers of the two common kinds.

    python3 scripts/make-tiny-tokenizers.py

tiny-bytes.json is byte-level BPE as GPT-2's: 256 bytes, 24 merges, then <|begin|>, <|end|>
(special) and <think> (added, not special); a prompt begins with <|begin|>. tiny-pieces.json is of
the SentencePiece kind as Llama 2's: <unk>, <s>, </s>, 256 byte tokens, pieces with U+2581 for the
space. Both are written by hand here; no tokenizer package is needed.
"""

import json
import os

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "data", "tokenizer")


def added(id, content, special):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}


def write(name, value):
    with open(os.path.join(DATA, name), "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, indent=1)
        f.write("\n")


def bos(id, content):
    start, text = {"SpecialToken": {"id": content, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [start, text],
        "pair": [start, text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {content: {"id": content, "ids": [id], "tokens": [content]}},
    }


def byte_level():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    spell = {**{b: chr(b) for b in own}, **{b: chr(256 + i) for i, b in enumerate(others)}}
    pairs = "Ġ t|h e|Ġt he|i n|Ġ a|e r|o n|Ġ h|Ġh a|Ã ©|â Ģ|ðŁ ĺ|ð Ł|Ġ Ġ|ĠĠ ĠĠ|r e|l l|' ll|Ġ s|n d|Ġa nd|Ċ Ċ|in g|ä ½".split("|")
    pairs = [tuple(p.split(" ")) for p in sorted(pairs, key=lambda p: len(p.replace(" ", "")))]
    vocab = {spell[b]: b for b in range(256)}
    for left, right in pairs:
        vocab[left + right] = len(vocab)
    n = len(vocab)
    write("tiny-bytes.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added(n, "<|begin|>", True), added(n + 1, "<|end|>", True), added(n + 2, "<think>", False)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": bos(n, "<|begin|>"),
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": [list(p) for p in pairs],
        },
    })


def pieces():
    specials = ["<unk>", "<s>", "</s>"]
    pairs = "▁ a|▁ t|h e|▁t he|▁ ▁|i n|▁ h|▁h a".split("|")
    pairs = [tuple(p.split(" ")) for p in sorted(pairs, key=lambda p: len(p.replace(" ", "")))]
    vocab = {t: i for i, t in enumerate(specials + [f"<0x{b:02X}>" for b in range(256)])}
    for left, right in pairs:
        vocab[left + right] = len(vocab)
    for c in "▁abcdefghijklmnopqrstuvwxyz.,!?é":
        vocab[c] = len(vocab)
    write("tiny-pieces.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added(i, t, True) for i, t in enumerate(specials)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None,
        "post_processor": bos(1, "<s>"),
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": [list(p) for p in pairs],
        },
    })


if __name__ == "__main__":
    byte_level()
    pieces()
