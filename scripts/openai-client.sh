#!/usr/bin/env bash
# Checks mistral.rs' server on Eyrie's pipeline with the openai client of PyPI:
#
#     scripts/openai-client.sh SERVER [MODEL]
#
# SERVER is the program eyrie-serve, MODEL a model directory or GGUF file to check as well: a chat
# model that knows the capital of France. The first checks run on a tiny random model, which is
# written on the spot. Everything it makes is in target/openai-client.
#
# Needs bash and python3 with venv (set PYTHON to choose another interpreter). XTASK names the program of
# that name where it is built already.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$root/target/openai-client

fail() {
    printf 'openai-client: %s\n' "$*" >&2
    exit 1
}

(($# == 1 || $# == 2)) || fail "usage: scripts/openai-client.sh SERVER [MODEL]"
server=$(realpath -- "$1")
[[ -x $server ]] || fail "$1 is not a program; build it with: cargo xtask host build"
model=${2:+$(realpath -- "$2")}

mkdir -p "$work"
if ! cmp -s "$root/scripts/openai-requirements.txt" "$work/venv/requirements.txt"; then
    rm -rf -- "$work/venv"
    "${PYTHON:-python3}" -m venv "$work/venv" || fail "${PYTHON:-python3} -m venv failed; install python3-venv or set PYTHON"
    "$work/venv/bin/pip" --disable-pip-version-check install --quiet --no-deps \
        -r "$root/scripts/openai-requirements.txt"
    cp "$root/scripts/openai-requirements.txt" "$work/venv/requirements.txt"
fi

if [[ -n ${XTASK:-} ]]; then
    "$XTASK" fixture "$work/tiny"
else
    (cd "$root" && cargo run --quiet --package xtask -- fixture "$work/tiny")
fi
"$work/venv/bin/python" "$root/scripts/openai-client.py" spell-json "$work/tiny"

pid=
stop() {
    if [[ -n $pid ]]; then
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        pid=
    fi
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# check ARGUMENTS_OF_CLIENT -- FLAGS_OF_SERVER: the server's first line says where it listens.
check() {
    local client=()
    while [[ $1 != -- ]]; do
        client+=("$1")
        shift
    done
    shift
    : >"$work/server.log"
    "$server" --port 0 --seed 5 "$@" >"$work/server.log" 2>&1 &
    pid=$!
    local url=
    for ((tenths = 0; tenths < 3000; tenths++)); do
        url=$(sed -n 's/^\(http[^ ]*\) serves .*/\1/p' "$work/server.log")
        [[ -z $url ]] || break
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    if [[ -z $url ]]; then
        cat "$work/server.log" >&2
        fail "the server did not start"
    fi
    if ! "$work/venv/bin/python" "$root/scripts/openai-client.py" "${client[@]}" --url "$url"; then
        cat "$work/server.log" >&2
        fail "a check failed"
    fi
    stop
}

check tiny --model "$work/tiny" -- --model "$work/tiny" --name tiny --drafter ngram --depth 3
if [[ -n $model ]]; then
    check chat --name chat -- --model "$model" --name chat --drafter ngram --depth 4
fi
