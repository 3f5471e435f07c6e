"""The outputs of the compiler for each target: the commands, and the files that they write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

TARGETS = ("sm_90", "gfx90a", "spirv64", "host")
SOURCE = "many.mlir"
_OBJECT = ("-c", SOURCE, "-o", "out/k.o")
_HEAD = "module attributes {gpu.container_module} {"
_KERNEL = """\
    gpu.func @kernel{0}(%p: memref<?xf32>) kernel {{
      %i = gpu.thread_id x
      %value = arith.constant {0}.0 : f32
      memref.store %value, %p[%i] : memref<?xf32>
      gpu.return
    }}"""
_FUNCTION = """\
  func.func @run{0}(%p: memref<?xf32>) attributes {{llvm.emit_c_interface}} {{
    %one = arith.constant 1 : index
    gpu.launch_func @many::@kernel{0} blocks in (%one, %one, %one)
        threads in (%one, %one, %one) args(%p : memref<?xf32>)
    return
  }}"""
_MAIN = """\
  func.func @main() -> i32 {
    %zero = arith.constant 0 : i32
    return %zero : i32
  }
}
"""
_MANIFEST = "archs: {arch}\nmodules: [many.mlir]\ntargets:\n  libk.a: {{kind: static, inputs: [many.mlir]}}\n"


@dataclass(frozen=True, slots=True)
class Output:
    """A kind of output. The last command writes `file`.

    `names` is the text by which each kernel is found in it; `{}` is the kernel's number.
    """

    file: str
    commands: Sequence[Sequence[str]]
    names: str = "kernel{}"


OUTPUTS: Mapping[str, Output] = {
    "object": Output("out/k.o", [_OBJECT]),
    "program": Output("out/k", [(SOURCE, "-o", "out/k")]),
    "library": Output("out/k.so", [("-shared", "-fPIC", SOURCE, "-o", "out/k.so")]),
    "bundle": Output("out/k.mob", [("bundle", SOURCE, "-o", "out/k.mob")]),
    "header": Output("out/k.h", [("--emit-header=out/k.h", SOURCE)], "run{}("),
    "JSON": Output("out/k.json", [(*_OBJECT, "--manifest=out/k.json")], SOURCE),
    "HTML": Output("out/k.html", [_OBJECT, ("inspect", "--html=out/k.html", "out/k.o")]),
    "archive": Output("build/default/lib/libk.a", [("build",)]),
    "reproducer": Output("out/k.tar", [(*_OBJECT, "--reproduce=out/k.tar")], "@kernel{}("),
}


# Rejected combinations: a bundle cannot contain SPIR-V.
_NEVER = {("bundle", "spirv64")}


class Cell(NamedTuple):
    """An output for a target."""

    output: str
    target: str


def all_cells() -> list[Cell]:
    """Return all cells of the table."""
    return [Cell(*pair) for pair in product(OUTPUTS, TARGETS) if pair not in _NEVER]


def diagonal() -> list[Cell]:
    """Return a few cells that include every output and every target."""
    return [Cell(name, TARGETS[at % len(TARGETS)]) for at, name in enumerate(OUTPUTS)]


def program_text(kernels: int) -> str:
    """Return a program with this number of kernels, and a function for each."""
    device = ["  gpu.module @many {", *(_KERNEL.format(n) for n in range(kernels)), "  }"]
    host = (_FUNCTION.format(n) for n in range(kernels))
    return "\n".join((_HEAD, *device, *host, _MAIN))


def manifest_text(target: str) -> str:
    """Return the manifest of a project with the static library."""
    return _MANIFEST.format(arch=target)
