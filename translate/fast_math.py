"""Set fast-math flags: all of them before the passes (`-ffast-math`), `contract` after the last pass."""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.translate.kind_lowering import Contraction
from mlir_offload.translate.mlir.module import parse_module
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Attribute

_LOWERED_FLAGS = "#llvm.fastmath"
_CONTRACT = "contract"
# `fast` is the set of all flags (llvm/IR/FMF.h).
_OTHERS = ("nnan", "ninf", "nsz", "arcp", "afn", "reassoc")
_ALONE = "none"
_FUSED = frozenset({"llvm.fadd", "llvm.fmul", "llvm.fneg", "llvm.fsub"})
_FLAGS = frozenset({"#arith.fastmath", _LOWERED_FLAGS})


def with_fast_math(text: str) -> str:
    """Set all fast-math flags of the floating-point operations of a program in generic form.

    mlir-opt prints the flags of each operation that supports them, also `none`.
    """
    module = parse_module(text)
    for operation in module.operation.walk_inside():
        if "fastmath<" in operation.head:
            properties = operation.properties
            for name, value in properties.items():
                if value.name in _FLAGS:
                    properties[name] = Attribute(f"{value.name}<fast>")
    return module.render()


def set_contraction(operations: Iterable[Operation], contraction: Contraction) -> None:
    """Set whether products and sums may be fused, in lowered operations and in their regions."""
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
        if value.name == _LOWERED_FLAGS:
            flags = _changed(value.body.split(", "), contraction)
            properties[name] = Attribute(f"{_LOWERED_FLAGS}<{', '.join(flags)}>")


def _changed(flags: list[str], contraction: Contraction) -> list[str]:
    if flags == ["fast"]:
        return flags if contraction is Contraction.FAST else list(_OTHERS)
    left = [flag for flag in flags if flag not in {_CONTRACT, _ALONE}]
    added = [_CONTRACT] if contraction is Contraction.FAST else []
    return [*left, *added] or [_ALONE]
