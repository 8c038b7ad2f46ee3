#!/usr/bin/env bash
# Distils on a GPU and trains on the same machine's cores, with the program that scripts/gpu-pack.sh built. The
# trainer computes on CPUs only: the GPU answers the prompts, 16 cores train. For a machine that takes a few
# dozen MiB at a time (PART_MIB), gives files of less than 16 MiB back, and is there for 12 minutes.
#
#     scripts/gpu-pack.sh && scripts/gpu-train.sh pack MODEL.gguf PROMPTS.jsonl    here: folders in target/cuda/train
#     scripts/gpu-train.sh take target/cuda/train/model.1                          there, and so with every folder
#     scripts/gpu-train.sh run                                                     there: the head, in pieces, in $OUT
#     scripts/gpu-train.sh join PIECES HEAD                                        here again
#
# With -n as the first argument it only prints what it would do. Not run on a GPU yet.
set -euo pipefail

# What fits: seconds of distilling at most, answers to train on, epochs of the two phases. Answers are taken
# in the order of prompts, so fewer are the first ones.
distill_s=${DISTILL_S:-210}
train_s=${TRAIN_S:-420}
answers=${ANSWERS:-4000}
epochs=${EPOCHS:-1,1}
device=${DEVICE:-cuda:0}
store=${STORE:-${TMPDIR:-target}/eyrie-train}
part_mib=${PART_MIB:-47}

dry=
if [[ ${1:-} == -n ]]; then
    dry=1
    shift
fi

# Runs a command, or prints it.
try() {
    if [[ $dry ]]; then
        printf '%q ' "$@"
        printf '\n'
    else
        "$@"
    fi
}

fail() {
    printf 'gpu-train: %s\n' "$1" >&2
    exit 1
}

pack() {
    [[ -f $1 ]] || fail "$1: no such file"
    [[ -f $2 ]] || fail "$2: no such file"
    local model prompts script to=target/cuda/train
    model=$(realpath "$1") prompts=$(realpath "$2") script=$(realpath "${BASH_SOURCE[0]}")
    cd "$(dirname "$script")/.."
    [[ $dry || -x target/cuda/pack/eyrie ]] || fail 'target/cuda/pack/eyrie is missing; scripts/gpu-pack.sh makes it'
    try rm -rf "$to"
    try mkdir -p "$to/program"
    try cp target/cuda/pack/eyrie "$script" "$to/program/"
    try cp "$prompts" "$to/program/prompts.jsonl"
    try split --bytes="${part_mib}M" --numeric-suffixes=1 --suffix-length=2 "$model" "$to/part."
    local at parts=$((($(stat -c %s "$model") - 1) / (part_mib << 20) + 1))
    for ((at = 1; at <= parts; at++)); do
        try mkdir "$to/model.$at"
        try mv "$to/part.$(printf %02d "$at")" "$to/model.$at/"
    done
    if [[ $dry ]]; then
        printf 'sha256sum < %q > %q\n' "$model" "$to/program/model.sha256"
        return
    fi
    sha256sum <"$model" >"$to/program/model.sha256"
    du -sh "$to"/*
}

take() {
    try mkdir -p "$store"
    try cp -r "$1/." "$store/"
}

# Folders of CUDA's libraries that the loader does not know: the toolkit's and those of Python packages.
libraries() {
    local nvidia folder
    nvidia=$(python3 -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null || true)
    # shellcheck disable=SC2086
    for folder in /usr/local/cuda/lib64 $([[ -z $nvidia ]] || find $nvidia -type d -name lib); do
        if [[ -d $folder ]]; then
            LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
        fi
    done
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
}

# A command that is asked to stop after some seconds; having been stopped is no failure of `distill`, whose
# data are whole at any moment.
within() {
    local seconds=$1 status=0
    shift
    try timeout --signal=INT --kill-after=20 "$seconds" "$@" || status=$?
    [[ $status == 0 || $status == 124 ]] || fail "$1 $2: status $status"
}

run() {
    local out=${OUT:-$store/out} model=$store/model.gguf
    libraries
    if [[ $dry ]]; then
        printf 'cat %q/part.* > %q\n' "$store" "$model"
    else
        cat "$store"/part.* >"$model"
        sha256sum <"$model" | cmp - "$store/model.sha256" || fail "$model is not the model that was packed"
        ! ldd "$store/eyrie" | grep 'not found' || fail 'libraries are missing'
    fi
    try chmod +x "$store/eyrie"
    within "$distill_s" "$store/eyrie" distill --model "$model" --prompts "$store/prompts.jsonl" --out "$store/data" \
        --device "$device" --batch 512 --max-tokens 160 --temperature-mix 0,0.7
    within "$train_s" "$store/eyrie" train eagle3 --model "$model" --data "$store/data" --out "$store/head" \
        --limit "$answers" --epochs "$epochs" --head-type bf16
    [[ $dry || -f $store/head/model.safetensors ]] || fail "training did not end in $train_s s; less ANSWERS or EPOCHS do"
    try mkdir -p "$out"
    try cp "$store/head/config.json" "$store/head/README.md" "$out/"
    try split --bytes=15M --numeric-suffixes=1 --suffix-length=1 "$store/head/model.safetensors" "$out/model.safetensors."
}

join() {
    local pieces=$1 head=$2
    try mkdir -p "$head"
    try cp "$pieces/config.json" "$pieces/README.md" "$head/"
    if [[ $dry ]]; then
        printf 'cat %q/model.safetensors.* > %q\n' "$pieces" "$head/model.safetensors"
    else
        cat "$pieces"/model.safetensors.* >"$head/model.safetensors"
    fi
}

case "${1:-} $#" in
'pack 3') pack "$2" "$3" ;;
'take 2') take "$2" ;;
'run 1') run ;;
'join 3') join "$2" "$3" ;;
*)
    sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
