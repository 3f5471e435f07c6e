"""The types that MLIR functions exchange with callers in C and Python.

They are spelled as in MLIR. Their C types follow the C wrappers of `llvm.emit_c_interface`
(mlir/docs/TargetLLVMIR.md, "C-compatible wrapper emission").
"""

from __future__ import annotations

import math
import re
from typing import Final

from msgspec import Struct

from mlir_offload.offload.interface.float8 import FLOAT8

_MEMREF: Final = re.compile(r"memref<((?:(?:\d{1,18}|\?)x)*)([\w<>]+)(?:, (.*))?>", re.DOTALL)
_UNRANKED: Final = re.compile(r"memref<\*x([\w<>]+)(?:, (.*))?>", re.DOTALL)
_VECTOR: Final = re.compile(r"vector<((?:\d{1,6}x)+)(\w+)>")
_MOST_VECTOR_BYTES = 1 << 20
_STRIDED: Final = re.compile(
    r"strided<\[((?:-?\d{1,18}|\?)(?:, (?:-?\d{1,18}|\?))*)?\](?:, offset: (-?\d{1,18}|\?))?>"
)
_LONGEST_SPELLING = 4096


class Element(Struct, frozen=True):
    """An element type: its C type, its size in bytes, and its kinds in NumPy's array interface.

    A signless integer accepts arrays of signed and unsigned integers (`iu`). bfloat16 and 8-bit floats have
    no kind (`V`); their arrays contain the bits, or the type `dtype` of ml_dtypes. A vector in memory has
    `lanes`, each a `part`; the innermost ones are in a row of `row_bytes`, which may be padded at the end.
    """

    spelling: str
    c_type: str
    size_bytes: int
    kinds: str
    dtype: str = ""
    lanes: tuple[int, ...] = ()
    part: Element | None = None
    row_bytes: int = 0

    @property
    def is_complex(self) -> bool:
        """Return whether it is a complex number."""
        return self.kinds == "c"

    @property
    def number(self) -> Element:
        """Return the scalar element type: the part of a vector, otherwise the type itself."""
        return self.part or self

    @property
    def align_bytes(self) -> int:
        """Return the alignment in bytes that compiled code assumes."""
        if self.lanes:
            return self.row_bytes
        return self.size_bytes // 2 if self.is_complex else self.size_bytes

    @property
    def lane_strides(self) -> tuple[int, ...]:
        """Return the stride of the lanes of each dimension of a vector, in bytes."""
        outer = range(1, len(self.lanes))
        rows = (self.row_bytes * math.prod(self.lanes[at:-1]) for at in outer)
        return (*rows, self.number.size_bytes)


def _integers() -> list[Element]:
    rows = [Element("i1", "bool", 1, "b"), Element("index", "int64_t", 8, "iu")]
    for bits in (8, 16, 32, 64):
        rows.append(Element(f"i{bits}", f"int{bits}_t", bits // 8, "iu"))
        rows.append(Element(f"si{bits}", f"int{bits}_t", bits // 8, "i"))
        rows.append(Element(f"ui{bits}", f"uint{bits}_t", bits // 8, "u"))
    return rows


ELEMENTS: Final = {
    row.spelling: row
    for row in (
        *_integers(),
        Element("f16", "mlir_f16", 2, "f"),
        Element("bf16", "mlir_bf16", 2, "V", "bfloat16"),
        *(Element(name, f"mlir_{name}", 1, "V", f"float8_{name[2:].lower()}") for name in FLOAT8),
        Element("f32", "float", 4, "f"),
        Element("f64", "double", 8, "f"),
        Element("complex<f32>", "mlir_complex_f32", 8, "c"),
        Element("complex<f64>", "mlir_complex_f64", 16, "c"),
    )
}
"""Every number type with the same representation in MLIR and C."""


class ScalarType(Struct, frozen=True):
    """A number that is passed by value."""

    spelling: str
    element: Element


class MemrefType(Struct, frozen=True):
    """A memref of known rank; None means a dynamic size, stride or offset.

    `strides` is None for the identity layout: row-major, contiguous.
    """

    spelling: str
    element: Element
    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...] | None = None
    offset: int | None = 0

    @property
    def rank(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)


class UnrankedType(Struct, frozen=True):
    """A memref of any rank."""

    spelling: str
    element: Element


class TokenType(Struct, frozen=True):
    """A `!gpu.async.token`: a stream of the caller."""

    spelling: str = "!gpu.async.token"


class InexpressibleType(Struct, frozen=True):
    """A type that callers in C and Python cannot pass."""

    spelling: str


InterfaceType = ScalarType | MemrefType | UnrankedType | TokenType | InexpressibleType


def parse_interface_type(text: str) -> InterfaceType:
    """Parse a type; its aliases must be resolved."""
    if len(text) > _LONGEST_SPELLING:
        return InexpressibleType(text[:_LONGEST_SPELLING])
    if text == TokenType().spelling:
        return TokenType()
    if text in ELEMENTS:
        return ScalarType(text, ELEMENTS[text])
    return _memref_type(text) or InexpressibleType(text)


def _memref_type(text: str) -> InterfaceType | None:
    unranked = _UNRANKED.fullmatch(text)
    if unranked is not None:
        element = _element(unranked[1])
        return UnrankedType(text, element) if element else None
    ranked = _MEMREF.fullmatch(text)
    element = _element(ranked[2]) if ranked else None
    if ranked is None or element is None:
        return None
    shape = tuple(map(_number, ranked[1].split("x")[:-1]))
    return _with_layout(text, element, shape, ranked[3] or "")


def _element(text: str) -> Element | None:
    return ELEMENTS.get(text) or _vector(text)


def _vector(text: str) -> Element | None:
    """Return a vector in its memory layout: rows of the innermost lanes, padded to a power of two.

    None for types without a C representation: vectors of i1, and implausibly large ones.
    """
    match = _VECTOR.fullmatch(text)
    part = ELEMENTS.get(match[2]) if match else None
    if match is None or part is None or part.is_complex or part.kinds == "b":
        return None
    lanes = tuple(int(size) for size in match[1].split("x")[:-1])
    row = 1 << (lanes[-1] * part.size_bytes - 1).bit_length()
    size = math.prod(lanes[:-1]) * row
    if not 0 < size <= _MOST_VECTOR_BYTES:
        return None
    name = f"mlir_vector_{match[1]}{part.spelling}"
    return Element(text, name, size, part.kinds, part.dtype, lanes, part, row)


def _with_layout(
    text: str, element: Element, shape: tuple[int | None, ...], rest: str
) -> InterfaceType:
    """Parse the text after the shape: a layout, a memory space, or both. Memory spaces are ignored."""
    if rest.startswith("affine_map<"):
        return InexpressibleType(text)
    strided = _STRIDED.match(rest)
    if strided is None:
        is_damaged = rest.startswith("strided<")
        return InexpressibleType(text) if is_damaged else MemrefType(text, element, shape)
    strides = tuple(map(_number, filter(None, (strided[1] or "").split(", "))))
    if len(strides) != len(shape):
        return InexpressibleType(text)
    return MemrefType(text, element, shape, strides, _number(strided[2] or "0"))


def _number(text: str) -> int | None:
    return None if text == "?" else int(text)
