"""Compare the OpenMP runtime rows in skew_limits.yaml with the calls that each clang emits; exit status 1 if they differ.

usage: python tests/foreign/openmp_runtime.py [--releases=15,...,22] [--root=N=DIR]

Each clang compiles a target region for the host and for a GPU. If the clang of a release is not installed,
that of a ziglang wheel is used; a release that has neither is listed and not compared.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.reader import Reader, print_differences  # noqa: E402

from mlir_offload.toolchain.skew.limits import load_limits  # noqa: E402

_REGION = """\
void f(int *p) {
#pragma omp target teams map(tofrom: p[0:1])
#pragma omp parallel
  p[0] = 1;
}
"""
_HOST, _DEVICE = "x86_64-unknown-linux-gnu", "nvptx64-nvidia-cuda"
# clang's option for compiling device code: from LLVM 17 on, and before.
_FOR_DEVICE = ("-fopenmp-is-target-device", "-fopenmp-is-device")
_DECLARED = re.compile(r"^declare [^\n]*@(__kmpc_\w+)\(([^\n]*)\)", re.MULTILINE)
_STRUCTURE = re.compile(r"^%struct\.(\w+) = type \{ (.*) \}$", re.MULTILINE)


def compile_region(clang: tuple[str, ...]) -> tuple[str, str]:
    """Return the IR of a target region for the host and for the device."""
    with tempfile.TemporaryDirectory() as folder:
        source, bitcode = Path(folder) / "region.c", Path(folder) / "host.bc"
        source.write_text(_REGION)
        host = (*clang, "-cc1", "-triple", _HOST, "-fopenmp", f"-fopenmp-targets={_DEVICE}")
        subprocess.run((*host, "-emit-llvm-bc", str(source), "-o", str(bitcode)), check=True)
        text = _run((*host, "-emit-llvm", str(source), "-o", "-"))
        device = (*clang, "-cc1", "-triple", _DEVICE, "-aux-triple", _HOST, "-fopenmp")
        device += ("-fopenmp-host-ir-file-path", str(bitcode), "-emit-llvm", str(source), "-o", "-")
        return text, next(filter(None, (_run((*device, flag)) for flag in _FOR_DEVICE)), "")


def _run(command: tuple[str, ...]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def mistakes(readers: tuple[Reader, ...]) -> Iterator[str]:
    """Yield the differences between the table and the calls of the releases."""
    for reader in readers:
        clang = reader.clang
        if clang:
            yield from _mistakes(reader.release, *compile_region(clang))
        else:
            print(f"LLVM {reader.release}: no clang, not compared")  # noqa: T201


def _mistakes(release: int, host: str, device: str) -> Iterator[str]:
    limits = load_limits()
    members, called = dict(_STRUCTURE.findall(host)), dict(_DECLARED.findall(device))
    for name, steps in limits.openmp_structures.items():
        found = _count(members.get(name, ""))
        if found != steps.at(release):
            yield f"LLVM {release}: {name} has {found} members, not {steps.at(release)}"
    for name, steps in limits.openmp_parameters.items():
        found = _count(called.get(name, ""))
        if found != steps.at(release):
            yield f"LLVM {release}: {name} has {found} parameters, not {steps.at(release)}"
    for name, first in limits.openmp_first.items():
        if (name in called) != (release >= first):
            yield f"LLVM {release}: {name} is {'' if name in called else 'not '}called"


def _count(words: str) -> int:
    """Return the number of types; an array type has no comma."""
    return words.count(",") + 1 if words else 0


if __name__ == "__main__":
    raise SystemExit(print_differences(__doc__, mistakes))
