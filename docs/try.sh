#!/bin/sh
# Compile a GPU-dialect program and run it: on the GPU where there is one, else on the CPU.
# Installs what it needs first (apt packages, a virtual environment); may be run again.
#
# usage: docs/try.sh [PROGRAM.mlir]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
venv=${MLIR_OFFLOAD_VENV:-$root/.venv}
program=${1:-$root/docs/examples/saxpy.mlir}

"$root/toolchain/setup.sh" run
"$venv/bin/mlir-offload" toolchains
printf '\n+ mlir-offload run -ftime-report %s\n' "$program"
exec "$venv/bin/mlir-offload" run -ftime-report "$program"
