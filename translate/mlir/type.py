"""Types, read from their text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from msgspec import Struct

from mlir_offload.toolchain.pattern import pattern
from mlir_offload.translate.mlir.attribute import Attribute, split_types
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import MLIR

_MEMREF = pattern(r"\bmemref<")
_SHAPE = pattern(r"((?:(?:\?|\d+|\[\d+\])x)*)(.*)", re.DOTALL)
_DIALECT_TYPE = pattern(r"![a-z]\w*\.[\w.]+")
_INTEGER = pattern(r"[su]?i(\d+)")
_FLOAT = pattern(r"b?f(\d+)|tf(\d+)")
_LLVM_TYPE = pattern(r"(?:ptr|struct|array|vec|target|x86_amx|ppc_fp128|x86_fp80)\b")


class Shaped(Struct, frozen=True):
    """A vector or memref: its sizes, None for one that is not known, its elements and further parameters."""

    sizes: tuple[int | None, ...]
    element: str
    parameters: tuple[str, ...] = ()


def integer_width(kind: str) -> int:
    """Return the bits of an integer type, 0 for another one."""
    match = _INTEGER.fullmatch(kind)
    return int(match[1]) if match else 0


def float_width(kind: str) -> int:
    """Return the number in the name of a floating-point type, 0 for another one."""
    match = _FLOAT.match(kind)
    return int(match[1] or match[2]) if match else 0


def parse_shaped(kind: str, name: str) -> Shaped | None:
    """Return the parts of `vector<...>` or `memref<...>`; None for other types and those without a rank."""
    if not kind.startswith(f"{name}<") or kind.startswith(f"{name}<*x"):
        return None
    first, *others = MLIR.split_list(Attribute(kind).body)
    match = _SHAPE.fullmatch(first)
    if match is None:
        return None
    sizes = (int(size) if size.isdigit() else None for size in match[1].split("x")[:-1])
    return Shaped(tuple(sizes), match[2], tuple(others))


def is_layout(parameter: str) -> bool:
    """Say whether a parameter of a memref is its layout, and not its memory space."""
    is_alias = parameter.startswith("#") and not parameter.startswith("#gpu.")
    return is_alias or parameter.startswith(("strided<", "affine_map<"))


def function_type(operation: Operation) -> tuple[list[str], list[str]]:
    """Return the types that a function takes, and those that it gives; nothing of another operation."""
    text = operation.attribute("function_type")
    if text.startswith("("):
        end = MLIR.closing(text, 0)
        return MLIR.split_list(text[1:end]), split_types(text[end + len(" -> ") + 1 :])
    if text.name != "!llvm.func":
        return [], []
    body = text.body
    start = MLIR.enclosing(body, len(body) - 1)[-1]
    result = body[:start].strip()
    takes = MLIR.split_list(body[start + 1 : -1])
    return [_spelled(kind) for kind in takes], [] if result == "void" else [_spelled(result)]


def _spelled(kind: str) -> str:
    """Return a type of the LLVM dialect as it is spelled outside of its own types."""
    return f"!llvm.{kind}" if _LLVM_TYPE.match(kind) else kind


def with_memref_space(text: str, spaces: Collection[str], other: str) -> str:
    """Return the text with every memref in one of the memory spaces in another, "" for the default."""
    if "memref<" not in text:
        return text
    for start in reversed([match.start() for match in _MEMREF.finditer(MLIR.blanked(text))]):
        opening = start + len("memref")
        end = MLIR.closing(text, opening)
        *parts, space = MLIR.split_list(text[opening + 1 : end])
        if parts and space in spaces:
            inner = text[opening + 1 : end].removesuffix(f", {space}")
            text = f"{text[: opening + 1]}{inner}{f', {other}' if other else ''}{text[end:]}"
    return text


def with_dialect_types(text: str, dialect: str, made: Callable[[Attribute], str]) -> str:
    """Return the text with other types for those of a dialect; an empty one keeps what is there."""
    mark = f"!{dialect}."
    if mark not in text:
        return text
    blanked = MLIR.blanked(text)
    for match in reversed(list(_DIALECT_TYPE.finditer(blanked))):
        start, end = match.span()
        if not match[0].startswith(mark):
            continue
        end = MLIR.closing(text, end) + 1 if text.startswith("<", end) else end
        text = f"{text[:start]}{made(Attribute(text[start:end])) or text[start:end]}{text[end:]}"
    return text
