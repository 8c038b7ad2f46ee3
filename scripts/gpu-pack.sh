#!/usr/bin/env bash
# Packs what scripts/gpu-run.sh needs on a machine with a GPU into target/cuda/pack (under 64 MiB): the
# program and the test binary, built in release with the feature `cuda`, and tiny fixtures. Needs no GPU.
#
# CUDA's libraries are linked dynamically and are not packed: the machine has to have those of CUDA 13.
# Here the linker gets stand-ins that only have their names and symbols.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stubs=$PWD/target/cuda/stubs
pack=$PWD/target/cuda/pack
build=$PWD/target/cuda/build/release

# Stand-ins for the libraries that cudarc declares functions of, as far as it declares them.
manifest=$("${CARGO:-cargo}" metadata --format-version 1 --features cuda | python3 -c '
import json, sys
packages = json.load(sys.stdin)["packages"]
candle = next(p for p in packages if p["name"] == "candle-core")
versions = {p["version"]: p["manifest_path"] for p in packages if p["name"] == "cudarc"}
series = next(d["req"] for d in candle["dependencies"] if d["name"] == "cudarc").lstrip("^=").rsplit(".", 1)[0]
print(next(path for version, path in versions.items() if version.startswith(series + ".")))')
sources=$(dirname "$manifest")/src
mkdir -p "$stubs"
stub() {
    local library=$1 soname=$2 folder=$3
    grep -rhoE 'pub unsafe fn [a-z]+[A-Z][A-Za-z0-9_]*\(' "$sources/$folder/sys" | sed -E 's/pub unsafe fn (.*)\(/void \1(void) {}/' |
        sort -u >"$stubs/$library.c"
    cc -shared -fPIC -w -o "$stubs/lib$library.so" -Wl,-soname,"$soname" "$stubs/$library.c"
}
stub cuda libcuda.so.1 driver
stub nvrtc libnvrtc.so.13 nvrtc
stub curand libcurand.so.10 curand
stub cublas libcublas.so.13 cublas
stub cublasLt libcublasLt.so.13 cublaslt
ln -sf ../toolkit/nvidia/cu13/lib/libcudart.so.13 "$stubs/libcudart.so"

export LIBRARY_PATH=$stubs${LIBRARY_PATH:+:$LIBRARY_PATH}
scripts/cuda-check.sh test --release --no-run --test it
CARGO_TARGET_DIR=target/cuda/build "${CARGO:-cargo}" build --release --package eyrie-fixtures --example write

rm -rf "$pack"
mkdir -p "$pack"
newest=$(find "$build/deps" -maxdepth 1 -name 'it-*' -perm -u+x -type f -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2)
strip -o "$pack/it" "$newest"
strip -o "$pack/eyrie" "$build/eyrie"
for name in tt td; do
    "$build/examples/write" "$name" "$pack/$name"
done
cp scripts/gpu-run.sh "$pack/"
bytes=$(du -sb "$pack" | cut -f1)
printf '%s: %d KiB\n' "$pack" $((bytes / 1024))
((bytes < 64 << 20)) || {
    printf 'gpu-pack: more than 64 MiB\n' >&2
    exit 1
}
