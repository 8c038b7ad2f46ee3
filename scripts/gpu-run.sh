#!/usr/bin/env bash
# Runs the pack of scripts/gpu-pack.sh on a machine with a GPU: the tests of the tensor decoder on the
# device (with the row-invariance probe), the program on it, and plain against drafted decoding on a tiny
# and a wide random model. Takes the folder of the pack; nothing is built and nothing is fetched.
#
#     scripts/gpu-run.sh target/cuda/pack [cuda:N]
set -uo pipefail
pack=$(cd "${1:-$(dirname "${BASH_SOURCE[0]}")}" && pwd)
export EYRIE_TEST_DEVICE=${2:-cuda:0}
out=${OUT:-$(mktemp -d)}

# Folders of CUDA's libraries that the loader does not know: the toolkit's and those of Python packages.
nvidia=$(python3 -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null)
for folder in /usr/local/cuda/lib64 $(for n in $nvidia; do find "$n" -type d -name lib; done); do
    [[ -d $folder ]] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
done
export LD_LIBRARY_PATH
if ldd "$pack/it" | grep 'not found'; then
    printf 'gpu-run: libraries are missing\n' >&2
    exit 1
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

failed=0
step() {
    local name=$1 begin=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    "$@" 2>&1 | tee "$out/$name.log"
    local status=${PIPESTATUS[0]}
    printf '== %s: status %d, %d s\n' "$name" "$status" $((SECONDS - begin))
    ((status == 0)) || failed=1
}

generate() {
    timeout 60 "$pack/eyrie" generate --model "$pack/tt" --device "$EYRIE_TEST_DEVICE" \
        --prompt-ids 1,2,3,4 --max-tokens 32 "$@"
}
# The same tokens of a seed, plain and drafted; needed only where rows are invariant.
program() {
    generate --print-config | grep -E '"(device|row_invariant)"' || return 1
    local drafts plain
    plain=$(generate --json --seed 1 --temperature 0.8) || return 1
    for drafts in '--drafter ngram' "--draft $pack/tt" "--draft $pack/td"; do
        # shellcheck disable=SC2086
        generate --json --seed 1 --temperature 0.8 $drafts >"$out/drafted.json" || return 1
        printf '%s\n%s\n' "$plain" "$(cat "$out/drafted.json")" | python3 -c '
import json, sys
plain, drafted = map(json.loads, sys.stdin)
same = plain["tokens"] == drafted["tokens"]
print(sys.argv[1], "same tokens" if same else "other tokens", len(plain["rounds"]), "rounds plain,", len(drafted["rounds"]), "drafted")
sys.exit(plain["config"]["row_invariant"] == "yes" and not same)' "$drafts" || return 1
    done
}

step tests timeout 300 "$pack/it" device:: --skip device::speed --nocapture --test-threads 1
step program program
step speed timeout 300 "$pack/it" device::speed --nocapture
exit "$failed"
