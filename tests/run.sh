#!/bin/sh
# Run the tests on the real tools: installs them first, and fails if a suite that must run was skipped.
# May be run again. Further arguments go to pytest, whose last line is the last one of the output.
#
# usage: tests/run.sh [PYTEST-ARGUMENT...]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
venv=${MLIR_OFFLOAD_VENV:-$root/.venv}

"$root/toolchain/setup.sh" test
cd "$root"
"$venv/bin/ruff" format --check --quiet .
"$venv/bin/ruff" check --quiet .
"$venv/bin/mypy" --no-error-summary
exec "$venv/bin/python" -m pytest --require-tools -n 3 "$@"
