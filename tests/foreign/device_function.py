"""Make a program of each function in upstream's conversion tests: a device function.

Such a test is a file of functions without kernels, for mlir-opt. Here each function is put into a
`gpu.module`, the pass of the test runs on it, and it is compiled as a function for kernels of other files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from foreign.program import Program

_ON_FUNCTIONS = "gpu.module(func.func({}))"
# The tests by their path below mlir/test, and the passes that a function needs before the driver's own.
CONVERSIONS: Mapping[str, str] = {
    "Conversion/NVGPUToNVVM/nvgpu-to-nvvm.mlir": "",
    "Conversion/VectorToGPU/fold-arith-vector-to-mma-ops-mma-sync.mlir": _ON_FUNCTIONS.format(
        "test-fold-arith-extf-into-vector-contract-patterns,convert-vector-to-gpu{use-nvgpu=true},cse"
    ),
    "Conversion/VectorToGPU/vector-to-mma-ops-mma-sync.mlir": _ON_FUNCTIONS.format(
        "convert-vector-to-gpu{use-nvgpu=true}"
    ),
    "Conversion/VectorToGPU/vector-to-mma-ops.mlir": _ON_FUNCTIONS.format(
        "convert-vector-to-gpu,canonicalize"
    ),
}
_PART = re.compile(r"^// -----.*$", re.MULTILINE)
_COMMENT = re.compile(r"^ *//")
_ALIAS = re.compile(r"[#!]\w+ *=")
_FUNCTION = re.compile(r"func\.func (?:private )?@([\w$.-]+)\(")
_NVIDIA = "sm_90a"


def find_device_functions(tests: Path, folder: Path) -> list[Program]:
    """Write each function below mlir/test to a separate file in the directory, and return the programs."""
    return [
        program
        for name, pipeline in CONVERSIONS.items()
        if (tests / name).exists()
        for program in _write_functions(tests / name, name, pipeline, folder)
    ]


def _write_functions(path: Path, name: str, pipeline: str, folder: Path) -> Iterator[Program]:
    stem = name.removesuffix(".mlir")
    for number, (function, text) in enumerate(cut_functions(path.read_text(encoding="utf-8"))):
        piece = f"{stem}/{number + 1}-{function}.mlir"
        target = folder / piece
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        yield Program(
            name=piece,
            path=target,
            pipeline=pipeline,
            nvidia=_NVIDIA,
            prefixes=(),
            merges_stderr=False,
            is_run=False,
            has_main=False,
            fails=False,
            is_device=True,
        )


def cut_functions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each function of a test, and a program with it in a gpu.module."""
    for part in _PART.split(text):
        lines = [line for line in part.splitlines() if not _COMMENT.match(line)]
        aliases: list[str] = []
        start = 0
        while start < len(lines):
            line = lines[start]
            end = start
            if _ALIAS.match(line):
                aliases.append(line)
            elif match := _FUNCTION.match(line):
                end = _end_of(lines, start)
                body = "\n".join(lines[start : end + 1])
                if body.endswith("}"):
                    yield match[1], "\n".join((*aliases, f"gpu.module @m {{\n{body}\n}}\n"))
            start = end + 1


def _end_of(lines: Sequence[str], start: int) -> int:
    """Return the last line of a function: its closing brace, or the first line of a declaration."""
    for index in range(start + 1, len(lines)):
        if lines[index] == "}":
            return index
        if _FUNCTION.match(lines[index]):
            break
    return start
