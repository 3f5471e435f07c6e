"""`-ffast-math`: the flags of every floating-point operation, before any pass looks at them."""

from __future__ import annotations

import re

from mlir_offload.translate.mlir_syntax import MLIR

_FLAGS = re.compile(r"(?<==) (#(?:arith|llvm)\.fastmath)<[\w,]*>")


def with_fast_math(text: str) -> str:
    """Return a program in generic form whose floating-point operations have all fast-math flags.

    mlir-opt prints the flags of each operation that can have any, `none` too.
    """
    return MLIR.replace(_FLAGS, lambda flags: f" {flags[1]}<fast>", text)
