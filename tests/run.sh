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
# What Python compiles is kept; else each worker would compile all tests and rewrite their assertions.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$root/.pytest_cache/compiled"
"$venv/bin/python" -m pytest --collect-only --quiet --quiet >/dev/null 2>&1 &
"$venv/bin/ruff" format --check --quiet .
"$venv/bin/ruff" check --quiet .
"$venv/bin/mypy" --no-error-summary
wait
# Neighbours run in one worker as far as possible: they share what their module builds.
exec "$venv/bin/python" -m pytest --require-tools -n 3 --dist worksteal "$@"
