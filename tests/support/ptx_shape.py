"""Compile NVPTX IR to PTX, and normalize the names of registers and labels in it."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Sequence

from mlir_offload.offload.ir_syntax import kernel_signatures
from mlir_offload.translate.kind.cuda import nvptx_device_ir

_REGISTER = re.compile(r"%[a-z]+\d+")
_LABEL = re.compile(r"\$L__BB\d+_\d+")
_OPERATION = re.compile(r"(?:@!?%\w+\s+)?([a-z][\w.:]*)\s")
# Operations that a lost `nuw` or `nneg` adds: address computations in 64 bits or with sign extension.
ADDRESS_OPERATIONS = frozenset(
    ("mov.u32", "mov.b32", "mul.wide.u32", "mul.wide.s32", "add.s64", "cvt.u64.u32", "cvt.s64.s32")
)


def ptx_of(text: str, major: int, *, library: str = "", arch: str = "sm_80") -> str:
    """Return the PTX that a release generates from mlir-translate's output, or from downgraded IR."""
    ready = nvptx_device_ir(text, kernels=kernel_signatures(text), llvm_major=major)
    link = ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", library) if library else ()
    done = subprocess.run(
        [
            f"/usr/lib/llvm-{major}/bin/clang",
            *("--target=nvptx64-nvidia-cuda", "-x", "ir", f"-march={arch}", "-O2", "-nogpulib"),
            *("-S", "-Wno-unknown-cuda-version", "-Wno-override-module", *link, "-", "-o", "-"),
            *("-Xclang", "-target-feature", "-Xclang", "+ptx78"),
        ],
        input=ready,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shape(ptx: str) -> list[str]:
    """Return the directives and instructions in order, without the numbers of registers and labels."""
    lines = (line.split("//")[0].strip() for line in ptx.splitlines())
    kept = (line for line in lines if line and not line.startswith(".reg"))
    return [_LABEL.sub("$L", _REGISTER.sub("%", line)) for line in kept]


def lost_facts(original: Sequence[str], older: Sequence[str]) -> set[str]:
    """Return the operations that occur more often in one than in the other."""
    counts = [
        Counter(match[1] for line in lines if (match := _OPERATION.match(line)))
        for lines in (original, older)
    ]
    directives = [[line for line in lines if line.startswith(".")] for lines in (original, older)]
    assert directives[0] == directives[1]
    return set((counts[0] - counts[1]) + (counts[1] - counts[0]))
