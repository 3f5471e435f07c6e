"""Extend unsigned arguments of functions that C defines."""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.translate.mlir.operation import Operation, function_type
from mlir_offload.translate.mlir.syntax import Attribute

_UNSIGNED = frozenset({"ui8", "ui16"})
_ARGUMENTS = "arg_attrs"


def extend_unsigned(functions: Iterable[Operation]) -> None:
    """Extend unsigned parameters of declared functions by zeros. Lowered types have no sign."""
    for function in functions:
        if not function.is_declaration:
            continue
        takes, _ = function_type(function)
        if not _UNSIGNED.isdisjoint(takes):
            given = function.attribute(_ARGUMENTS).elements or (Attribute("{}"),) * len(takes)
            made = map(_zero_extended, takes, given)
            function.signature.properties[_ARGUMENTS] = Attribute(f"[{', '.join(made)}]")


def _zero_extended(kind: str, attributes: Attribute) -> str:
    if kind not in _UNSIGNED or "llvm.signext" in attributes or "llvm.zeroext" in attributes:
        return attributes
    inside = attributes[1:-1].strip()
    return f"{{{inside}{', ' if inside else ''}llvm.zeroext}}"
