"""`-ffast-math`: the flags of every floating-point operation, before any pass looks at them."""

from __future__ import annotations

from mlir_offload.translate.mlir.module import parse_module
from mlir_offload.translate.mlir.syntax import Attribute

_FLAGS = frozenset({"#arith.fastmath", "#llvm.fastmath"})


def with_fast_math(text: str) -> str:
    """Return a program in generic form whose floating-point operations have all fast-math flags.

    mlir-opt prints the flags of each operation that can have any, `none` too.
    """
    module = parse_module(text)
    for operation in module.operation.walk_inside():
        if "fastmath<" in operation.head:
            properties = operation.properties
            for name, value in properties.items():
                if value.name in _FLAGS:
                    properties[name] = Attribute(f"{value.name}<fast>")
    return module.render()
