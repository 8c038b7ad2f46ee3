#!/usr/bin/env bash
# Type-checks the feature `cuda` on a machine that needs no GPU: nvcc 13.0 comes from PyPI. Not part of CI.
#
#     scripts/cuda-check.sh              cargo check
#     scripts/cuda-check.sh build ...    another cargo command with the same settings
#
# $CARGO is the cargo that is called (cargo). Everything lands in target/cuda.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
    nvidia-cuda-nvcc==13.0.88
    'nvidia-cuda-runtime==13.0.*'
    'nvidia-cuda-crt==13.0.*'
    'nvidia-nvvm==13.0.*'
    'nvidia-cuda-cccl==13.0.*'
    'nvidia-curand==10.4.*'
)
toolkit=$PWD/target/cuda/toolkit
if [[ ! -x $toolkit/nvidia/cu13/bin/nvcc ]]; then
    rm -rf "$toolkit"
    python3 -m pip install --quiet --no-deps --target "$toolkit" "${packages[@]}"
fi
cu=$toolkit/nvidia/cu13
export CUDA_HOME=$cu CUDA_PATH=$cu CUDA_ROOT=$cu CUDA_TOOLKIT_ROOT_DIR=$cu
export CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-90}
export PATH=$cu/bin:$PATH
export CARGO_TARGET_DIR=$PWD/target/cuda/build

(($#)) || set -- check
command=$1
shift
begin=$SECONDS
"${CARGO:-cargo}" "$command" --package eyrie --features cuda "$@"
printf 'cargo %s --features cuda: %d s\n' "$command" $((SECONDS - begin))
