"""The flags of lowered operations that let a product and a sum become one operation."""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.translate.contraction import Contraction
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Attribute

_FLAGS = "#llvm.fastmath"
_CONTRACT = "contract"
# `fast` is all of them (llvm/IR/FMF.h).
_OTHERS = ("nnan", "ninf", "nsz", "arcp", "afn", "reassoc")
_ALONE = "none"
_FUSED = frozenset({"llvm.fadd", "llvm.fmul", "llvm.fneg", "llvm.fsub"})


def set_contraction(operations: Iterable[Operation], contraction: Contraction) -> None:
    """Change the flags of lowered operations, and of those inside of them."""
    if contraction is Contraction.ON:
        return
    for operation in operations:
        for inner in (operation, *operation.walk_inside()):
            is_meant = contraction is Contraction.OFF or inner.name in _FUSED
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
        return flags if contraction is Contraction.FAST else list(_OTHERS)
    left = [flag for flag in flags if flag not in {_CONTRACT, _ALONE}]
    added = [_CONTRACT] if contraction is Contraction.FAST else []
    return [*left, *added] or [_ALONE]
