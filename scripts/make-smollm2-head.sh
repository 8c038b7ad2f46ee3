#!/usr/bin/env bash
# Makes assets/smollm2-135m-eagle3: a head of SmolLM2-135M-Instruct, trained on the model's own answers, and
# measures it on the prompts of assets/prompts. It keeps its work in target/smollm2, and goes on from there when
# it was stopped. Some hours on a few cores.
#
# Needs bash, python3 with pip, the model (scripts/fetch-models.sh), and the program built (EYRIE, or
# target/release/eyrie).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

eyrie=${EYRIE:-target/release/eyrie}
model=models/SmolLM2-135M-Instruct.Q4_1.gguf
work=target/smollm2
head=assets/smollm2-135m-eagle3

[[ -x $eyrie ]] || {
    printf 'make-smollm2-head: no program at %s; run cargo build --release, or set EYRIE\n' "$eyrie" >&2
    exit 1
}
mkdir -p "$work"

[[ -f $work/prompts.jsonl ]] || scripts/training-prompts.py "$work/prompts.jsonl" --cache "$work" --count 8000
"$eyrie" distill --model "$model" --prompts "$work/prompts.jsonl" --limit 2468 --out "$work/data" \
    --temperature-mix 0,0.7
if [[ ! -f $head/README.md ]]; then
    "$eyrie" train eagle3 --model "$model" --data "$work/data" --out "$head" --draft-vocab 10240 --epochs 2,2
fi
"$eyrie" check-head --model "$model" --draft "$head" --prompts assets/prompts/chat.jsonl
"$eyrie" bench --model "$model" --drafters "eagle=$head,ngram,ngram+eagle=$head" --depths 4 --temperature 0 \
    --prompts assets/prompts/{chat,code,maths,summary}.jsonl --max-tokens 128 --repeats 1 --out "$work/bench"
