"""The syntax of MLIR text: every reader and rewrite of it leaves strings and comments alone."""

from __future__ import annotations

from mlir_offload.toolchain.syntax import Syntax

MLIR = Syntax(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*', operators="->|[<>]=")
