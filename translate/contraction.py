"""`-ffp-contract`: whether a product and a sum of device code may become one fused operation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from mlir_offload.translate.mlir.attribute import Attribute
from mlir_offload.translate.mlir.operation import Operation

_FLAGS = "#llvm.fastmath"
_CONTRACT = "contract"
# `fast` is all of them (llvm/IR/FMF.h).
_OTHERS = ("nnan", "ninf", "nsz", "arcp", "afn", "reassoc")
_ALONE = "none"
_FUSED = frozenset({"llvm.fadd", "llvm.fmul", "llvm.fneg", "llvm.fsub"})


Contraction = Literal["off", "on", "fast"]
"""Where a product and a sum may be fused, named as by clang.

`on`: where the program allows it, by the flag `contract` of both operations; `off`: nowhere; `fast`:
everywhere.
"""
CONTRACTIONS: tuple[Contraction, ...] = get_args(Contraction)


def set_contraction(operations: Iterable[Operation], contraction: Contraction) -> None:
    """Change the flags of lowered operations, and of those inside of them."""
    if contraction == "on":
        return
    for operation in operations:
        for inner in (operation, *operation.walk_inside()):
            is_meant = contraction == "off" or inner.name in _FUSED
            if is_meant and "fastmath<" in inner.head:
                _change(inner, contraction)


def _change(operation: Operation, contraction: Contraction) -> None:
    properties = operation.properties
    for name, value in properties.items():
        if value.name == _FLAGS:
            flags = _changed(value.body.split(", "), contraction)
            properties[name] = Attribute(f"{_FLAGS}<{', '.join(flags)}>")


def _changed(flags: list[str], contraction: Contraction) -> list[str]:
    if flags == ["fast"]:
        return flags if contraction == "fast" else list(_OTHERS)
    left = [flag for flag in flags if flag not in {_CONTRACT, _ALONE}]
    added = [_CONTRACT] if contraction == "fast" else []
    return [*left, *added] or [_ALONE]
