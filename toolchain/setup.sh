#!/bin/sh
# Install the requirements of mlir-offload on Debian 12: LLVM packages with apt, and a virtual environment.
# The script can be run again; it changes nothing that is already installed.
#
# usage: toolchain/setup.sh run     one LLVM release, to compile and run programs
#        toolchain/setup.sh test    every release that the tests use
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
venv=${MLIR_OFFLOAD_VENV:-$root/.venv}

say() { printf '%s\n' "setup: $*" >&2; }

case "${1:-}" in
run)
  packages="clang-22 clang-tools-22 lld-22 llvm-22 mlir-22-tools liboffload-22"
  extras=""
  ;;
test)
  packages="clang-22 clang-tools-22 lld-22 llvm-22 mlir-22-tools liboffload-22
            clang-19 clang-tools-19 lld-19 llvm-19 mlir-19-tools libomp-19-dev
            clang-16 clang-tools-16 lld-16 llvm-16
            clang-15 clang-tools-15 lld-15 llvm-15
            libclang-rt-22-dev rocm-device-libs libamdhip64-dev spirv-tools chromium gdb
            cmake ninja-build make g++ pkg-config strace patch
            zsh fish man-db groff ccache sccache redis-tools nginx
            slurmctld slurmd slurm-client munge
            postgresql bubblewrap openssl"
  extras="[cuda,dev]"
  ;;
*)
  say "usage: toolchain/setup.sh run|test"
  exit 2
  ;;
esac
packages="$packages libc6-dev python3 python3-venv"

missing=""
for package in $packages; do
  dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
if [ -n "$missing" ]; then
  say "installing by apt:$missing"
  as_root=""
  if [ "$(id -u)" -ne 0 ]; then
    as_root=sudo
    command -v sudo >/dev/null || { say "not root and no sudo: install these packages first"; exit 3; }
  fi
  export DEBIAN_FRONTEND=noninteractive
  # Do not start the packages' services: the tests start their own servers on other ports.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
    trap '$as_root rm -f "$policy"' EXIT
  fi
  $as_root apt-get update -qq >&2
  # Skip recommended packages: a gigabyte of documentation and editors.
  # shellcheck disable=SC2086
  $as_root apt-get install -y -qq --no-install-recommends $missing >&2
fi

if [ ! -x "$venv/bin/python" ]; then
  say "making the virtual environment $venv"
  python3 -m venv "$venv"
fi
lock=$root/tests/requirements.txt
stamp=$(cat "$root/pyproject.toml" "$lock" "$0" | cksum)$extras
pip() { "$venv/bin/python" -m pip "$@" --quiet --disable-pip-version-check >&2; }
if [ "$(cat "$venv/mlir-offload.stamp" 2>/dev/null)" != "$stamp" ]; then
  say "installing mlir-offload$extras into $venv"
  # The first line of the lock file contains the Python version and the machine type.
  this=$("$venv/bin/python" -c 'import platform, sys; print("# Python %d.%d," % sys.version_info[:2], platform.machine())')
  if [ -n "$extras" ] && [ "$(head -n 1 "$lock" | cut -d ';' -f 1)" = "$this" ]; then
    pip install --require-hashes --no-deps --requirement "$lock"
    pip install --no-deps --no-build-isolation --editable "$root"
  else
    pip install --editable "$root$extras"
  fi
  printf '%s' "$stamp" >"$venv/mlir-offload.stamp"
fi
