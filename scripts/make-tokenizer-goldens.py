#!/usr/bin/env python3
"""Makes tests/data/tokenizer/smollm2.jsonl: texts with the token ids of SmolLM2.

    pip install gguf==0.19.0 tiktoken==0.14.0 regex==2026.11.19 transformers==4.49.0
    scripts/fetch-models.sh
    python3 scripts/make-tokenizer-goldens.py

The ids come from public code that shares nothing with the `tokenizers` library under test:

* tiktoken, with the GGUF's tokens as ranks (its merges are in the order of their ids, checked
  here), special tokens allowed, every number character split off first, then GPT-2's pattern;
* the pure-Python GPT2Tokenizer of transformers 4 (`use_fast` plays no part in it), with the GGUF's
  merges and the same split.

A line is written only if both agree; a disagreement is printed, with both answers, and the exit
status is then 1. The vocabulary has no token for 21 byte values (0x04, 0x06, 0x13, 0x14, 0x16,
0x1d, 0xc0, 0xc1, 0xf1, 0xf2 and 0xf5 to 0xff): both encoders are made to leave those bytes out, as
`tokenizers` does without an unknown token and byte fallback. One difference is known and therefore
not among the texts: `tokenizers` leaves such a byte out before merging, these two after, so that
"!\\x04!" is the one token "!!" there and two tokens here. `decoded` is the text of the ids without
the special tokens.
"""

import json
import os
import random
import sys
import tempfile

import regex
import tiktoken
from gguf import GGUFReader
from transformers import AddedToken, GPT2Tokenizer

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(ROOT, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
OUT = os.path.join(ROOT, "tests", "data", "tokenizer", "smollm2.jsonl")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def alphabet():
    """GPT-2's spelling of the 256 bytes."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    return {**{b: chr(b) for b in own}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def texts():
    """The texts, fixed ones first, then some made from a fixed seed."""
    yield from (
        "", " ", "  ", "   ", "a", " a", "a ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r", "\r\n", "\r\n\r\n", "\n \n", " \n", "\n ",
        "The capital of France is", " Paris", "Paris.", "Name the capital of France.", "Hello, world!", "hello world", "HELLO WORLD",
        "The quick brown fox jumps over the lazy dog.", "Once upon a time, there was a little girl named Lily.",
        "In 1969, Neil Armstrong said: \"That's one small step for [a] man\".",
        # digits: split singly
        "0", "7", "42", "007", "1234567890", " 1", " 12", "  123", "3.14159", "1,000,000", "-5", "1e-10", "0xDEADBEEF", "v1.2.3-rc4", "2024-02-29T23:59:60Z",
        "192.168.0.1:8080", "(555) 867-5309", "50%", "$19.99", "a1b2c3", "x86_64", "12th 1st 2nd 3rd", "9" * 40, "10 20  30   40",
        "\u0661\u0662\u0663", "\u0967\u0968\u0969", "\uff11\uff12\uff13", "\u00bd \u00bc \u00b2 \u00b3", "\u2160 \u2161 \u2167", "\u2460\u2461", "\U0001d7d8\U0001d7d9", "\u4e00\u4e8c\u4e09",
        # contractions
        "I'm", "don't", "we'll", "they've", "he'd", "you're", "it's", "I'M", "DON'T", "WE'LL", "'s", " 's", "''s", "rock'n'roll", "y'all'd've", "l'\u00e9t\u00e9", "it\u2019s",
        "'", "''", "'t", "' t", "o'clock",
        # whitespace
        "a  b", "a   b", "a    b", "a\tb", "a\t\tb", "a \t b", "a\nb", "a \nb", "a\n b", "a\r\nb", "line one\r\nline two\r\n", "mixed\rold mac\r",
        " " * 7, " " * 16, " " * 31, " " * 100, "x" + " " * 50 + "y", "\t" * 20, "\n" * 25, "trailing   ", "   leading", "\u00a0", "a\u00a0b", "\u2003em\u2003space", "\u3000", "a\u200bb", "\ufeffbom",
        "\u2028", "a\u2029b", "\u0085", "\x0b\x0c", "\x1c\x1f",
        # code
        "def f(x):\n    return x + 1\n", "if (a && b) { c++; }", "for (int i = 0; i < 10; ++i)\n\tsum += v[i];", "fn main() {\n    println!(\"{}\", 1);\n}\n",
        "SELECT * FROM t WHERE id = 1;", "<div class=\"a\">&nbsp;</div>", "#include <stdio.h>", "std::vector<int>{}", "a->b.c[0]", "x = y == z != w", "// comment", "/* block */", "'''doc'''",
        "\\n\\t\\\\", "C:\\Users\\me", "/usr/local/bin", "https://example.com/a?b=c&d=%20#e", "user@example.com", "{\"key\": [1, null, true]}", "```python\nprint(1)\n```", "$\\frac{1}{2}$", "=> -> <- <= >= === !==",
        "snake_case camelCase PascalCase kebab-case SCREAMING_CASE", "__init__", "0b1010_1010", "~/.bashrc", "git commit -m \"x\"", "@decorator", "%s %d %5.2f",
        # punctuation
        "!", "!!", "!!!", "...", "\u2026", "?!?!", "-", "--", "---", "\u2014", "\u2013", "\u201cquoted\u201d", "\u2018q\u2019", "(a)", "[b]", "{c}", "<d>", "a,b;c:d", "#hashtag", "***", "===", "_____", "~~~~",
        # scripts
        "caf\u00e9", "na\u00efve", "\u00c9cole", "\u00df", "\u00bfQu\u00e9?", "\u0141\u00f3d\u017a", "\u0130stanbul", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5", "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
        "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u3053\u3093\u306b\u3061\u306f", "\u30ab\u30bf\u30ab\u30ca", "\uc548\ub155\ud558\uc138\uc694", "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0", "\u0531\u0532", "\u12a0\u121b\u122d\u129b", "\u1200", "\u0f56\u0f7c\u0f51",
        "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8 123", "mixed \u0420\u0443\u0441\u0441\u043a\u0438\u0439 and \u4e2d\u6587 text", "\u0100\u0143\u0175", "\U00010348", "\U0001d400\U0001d401", "\ufb01 \ufb02", "\u2100\u2122\u00ae",
        # emoji, joined and coloured
        "\U0001f600", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f1eb\U0001f1f7", "\u2764\ufe0f", "1\ufe0f\u20e3", "\U0001f600\U0001f600\U0001f600", "hi \U0001f44b there", "\U0001f9d1\U0001f3ff\u200d\U0001f680",
        # combining marks
        "e\u0301", "cafe\u0301", "a\u0308o\u0308u\u0308", "Z\u0351\u036b\u0343a\u0363\u0367l\u0310", "\u1e9b\u0323", "\u212b \u00c5 A\u030a", "\u0301", " \u0301", "\u0627\u064e\u0644\u0652",
        # special tokens in text
        "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "a<|im_end|>b", " <|im_end|> ", "<|im_end|><|im_end|>", "<|endoftext|>1 2", "<repo_name>x<file_sep>y", "<jupyter_code>print(1)",
        "<|im_start", "<|im_start |>", "<|IM_END|>", "|im_end|>", "<<|im_end|>>", "<empty_output>\n", "<|im_end|>\u00e9", "5<|im_start|>5", "<gh_stars>100",
        # looks broken, is valid
        "\ufffd", "a\ufffdb", "\ufffd\ufffd\ufffd", "\ufffe", "\uffff", "\ud7ff\ue000", "\U0010ffff", "\U000f0000", "\u00c3\u00a9", "\u00e2\u20ac\u2122", "%C3%A9", "\\xff\\xfe", "&#233;", "\u202eabc\u202c", "\u200f\u200e", "\u00ad",
        # control characters; 0x04, 0x06, 0x13, 0x14, 0x16, 0x1d have no token
        "\x00", "a\x00b", "\x01\x02\x03", "\x04", "a\x04b", "\x05\x06\x07", "\x08\x7f", "\x0e\x0f\x10\x11\x12", "x\x13\x14y", "\x15\x16\x17\x18", "\x19\x1a\x1b[0m", "\x1d\x1e", "\x80\x9f", "a \x1d b",
        # planes whose bytes 0xf1, 0xf2 have no token
        "\U00050000", "a\U000a1234b", "\U0007ffff\U00080000",
        # long words
        "antidisestablishmentarianism", "Donaudampfschifffahrtsgesellschaftskapit\u00e4n", "a" * 300, "ab" * 200, "xyzzy" * 60, "supercalifragilisticexpialidocious" * 4, "\u00e9" * 100, "\u4f60" * 80, "!" * 120, "ACGT" * 64,
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "qzxjkvbwpfghmnlrtdcsyueoia",
    )
    rng = random.Random(20240614)
    pools = (
        "abcdefghijklmnopqrstuvwxyz ",
        "ABC abc 012 .,;'\"\n\t",
        "theandoingers ' st re ve ll",
        "0123456789 .-+eE",
        "\u00e0\u00e9\u00ee\u00f5\u00fc\u00e7\u00f1 aeiou",
        "\u4f60\u597d\u4e16\u754c \u3053\u3093 abc",
        "\U0001f600\U0001f468\u200d\ufe0f\u0301 e",
        " \t\r\n\u00a0\u2003x",
        "{}[]()<>=+-*/;:.,_'\"\\ \nabc12",
    )
    for pool in pools:
        for _ in range(10):
            yield "".join(rng.choice(pool) for _ in range(rng.randint(3, 60)))
    for _ in range(10):
        points = (rng.choice((rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0xD800), rng.randrange(0xE000, 0x30000))) for _ in range(25))
        yield "".join(map(chr, points))


def main():
    reader = GGUFReader(MODEL)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    offset = len(tokens) - len(merges)
    assert all(m.replace(" ", "") == tokens[offset + i] for i, m in enumerate(merges)), "ids are not in merge order"

    spell = alphabet()
    byte = {c: b for b, c in spell.items()}
    special = {t: i for i, t in enumerate(tokens) if kinds[i] == 3}
    ranks = {bytes(byte[c] for c in t): i for i, t in enumerate(tokens) if kinds[i] == 1}
    missing = [b for b in range(256) if bytes([b]) not in ranks]
    for extra, b in enumerate(missing):
        ranks[bytes([b])] = len(tokens) + extra
    tik = tiktoken.Encoding("smollm", pat_str=GPT2, mergeable_ranks=ranks, special_tokens=special)
    marks = regex.compile("(" + "|".join(map(regex.escape, sorted(special, key=len, reverse=True))) + ")")
    numbers = regex.compile(r"(\p{N})")

    def pieces(text):
        """(piece, whether it is a special token), every number character on its own."""
        for part in marks.split(text):
            if part in special:
                yield part, True
            else:
                yield from ((p, False) for p in numbers.split(part) if p)

    def by_tiktoken(text):
        ids = []
        for piece, marked in pieces(text):
            ids += [special[piece]] if marked else tik.encode_ordinary(piece)
        return [i for i in ids if i < len(tokens)]

    with tempfile.TemporaryDirectory() as folder:
        vocab_file, merges_file = os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt")
        with open(vocab_file, "w", encoding="utf-8") as f:
            json.dump({t: i for i, t in enumerate(tokens)}, f)
        with open(merges_file, "w", encoding="utf-8") as f:
            f.write("#version: 0.2\n" + "\n".join(merges) + "\n")
        unknown = AddedToken("<|endoftext|>", normalized=False)
        slow = GPT2Tokenizer(vocab_file, merges_file, unk_token=unknown, bos_token="<|im_start|>", eos_token="<|im_end|>")

    def by_python(text):
        ids = []
        for piece, marked in pieces(text):
            if marked:
                ids.append(special[piece])
            else:
                ids += [slow.encoder[t] for t in slow._tokenize(piece) if t in slow.encoder]
        return ids

    lines, disagreements, seen = [], 0, set()
    for text in texts():
        if text in seen:
            continue
        seen.add(text)
        first, second = by_tiktoken(text), by_python(text)
        if first != second:
            disagreements += 1
            print(f"disagreement at {text!r}: tiktoken {first}, GPT2Tokenizer {second}", file=sys.stderr)
            continue
        plain = b"".join(bytes(byte[c] for c in tokens[i]) for i in first if kinds[i] == 1)
        lines.append(json.dumps({"text": text, "ids": first, "decoded": plain.decode("utf-8", "replace")}, ensure_ascii=True))
    with open(OUT, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")
    print(f"{len(lines)} lines, {disagreements} disagreements: {os.path.relpath(OUT, ROOT)}")
    sys.exit(disagreements > 0)


if __name__ == "__main__":
    main()
