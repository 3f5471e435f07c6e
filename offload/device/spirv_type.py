"""The types of a SPIR-V module, and the sizes of their values in memory."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar, NamedTuple

from msgspec import Struct, field

_LARGEST = 1 << 64
_BITS_PER_BYTE = 8
_STORAGE_CLASSES = {
    0: "UniformConstant",
    4: "Workgroup",
    5: "CrossWorkgroup",
    7: "Function",
    8: "Generic",
    12: "StorageBuffer",
}


class TypeOp(IntEnum):
    """The instructions that declare types and their constants (`OpType...`, `OpConstant`)."""

    INT = 21
    FLOAT = 22
    VECTOR = 23
    IMAGE = 25
    SAMPLER = 26
    SAMPLED_IMAGE = 27
    ARRAY = 28
    STRUCT = 30
    OPAQUE = 31
    POINTER = 32
    FUNCTION = 33
    CONSTANT = 43


_OPAQUE_TYPES = {
    TypeOp.IMAGE: "OpTypeImage",
    TypeOp.SAMPLER: "OpTypeSampler",
    TypeOp.SAMPLED_IMAGE: "OpTypeSampledImage",
    TypeOp.OPAQUE: "OpTypeOpaque",
}


class SpirvType(NamedTuple):
    """A type as SPIR-V spells it. The size is None if the device determines it; `pointee` is an ID."""

    name: str
    size_bytes: int | None
    alignment: int = 1
    pointee: int = 0


_UNKNOWN = SpirvType("", None)


class SpirvTypes(Struct):
    """The types found so far, by ID; each refers only to earlier ones, so one pass is sufficient.

    `pointer_bytes` and `packed` (the IDs of structs without padding) must be set before any type is read.
    """

    OPERATIONS: ClassVar[frozenset[int]] = frozenset(TypeOp)

    pointer_bytes: int | None = None
    packed: set[int] = field(default_factory=set)
    functions: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _types: dict[int, SpirvType] = field(default_factory=dict)
    _constants: dict[int, int] = field(default_factory=dict)

    def get(self, number: int) -> SpirvType:
        """Return the type of an ID; a type of unknown size if there is none."""
        return self._types.get(number, _UNKNOWN)

    def read(self, operation: int, operands: Sequence[int]) -> None:
        """Read an instruction of `OPERATIONS`; one that lacks operands defines nothing."""
        match operation, *operands:
            case TypeOp.INT, number, width, _:
                self._add_scalar(number, f"OpTypeInt {width}", width)
            case TypeOp.FLOAT, number, width, *_:
                self._add_scalar(number, f"OpTypeFloat {width}", width)
            case TypeOp.VECTOR, number, element, count:
                # A vector of three elements has the size of one of four (OpenCL C, 6.1.5).
                self._add_vector(number, element, count + (count == 3))  # noqa: PLR2004
            case TypeOp.ARRAY, number, element, length:
                self._add_array(number, element, self._constants.get(length))
            case TypeOp.STRUCT, number, *members:
                self._add_struct(number, members)
            case TypeOp.POINTER, number, storage, pointee:
                name = f"OpTypePointer {_STORAGE_CLASSES.get(storage, storage)}"
                size = self.pointer_bytes
                self._types[number] = SpirvType(name, size, size or 1, pointee)
            case TypeOp.FUNCTION, number, _, *parameters:
                self.functions[number] = tuple(parameters)
            case TypeOp.CONSTANT, _, number, low, *high:
                self._constants[number] = low | (high[0] << 32 if high else 0)
            case opaque, number, *_ if opaque in _OPAQUE_TYPES:
                self._types[number] = SpirvType(_OPAQUE_TYPES[TypeOp(opaque)], None)

    def _add_scalar(self, number: int, name: str, width: int) -> None:
        size = max(1, width // _BITS_PER_BYTE)
        self._types[number] = SpirvType(name, size, size)

    def _add_vector(self, number: int, element: int, count: int) -> None:
        size = self.get(element).size_bytes
        total = _bounded(size * count) if size is not None else None
        self._types[number] = SpirvType("OpTypeVector", total, total or 1)

    def _add_array(self, number: int, element: int, length: int | None) -> None:
        _, size, alignment, _ = self.get(element)
        total = _bounded(size * length) if size is not None and length is not None else None
        self._types[number] = SpirvType("OpTypeArray", total, alignment)

    def _add_struct(self, number: int, members: Sequence[int]) -> None:
        end: int | None = 0
        largest = 1
        for member in members:
            _, size, alignment, _ = self.get(member)
            alignment = 1 if number in self.packed else alignment
            if end is not None:
                end = _bounded(aligned(end, alignment) + size) if size is not None else None
            largest = max(largest, alignment)
        total = aligned(end, largest) if end is not None else None
        self._types[number] = SpirvType("OpTypeStruct", total, largest)


def aligned(place: int, alignment: int) -> int:
    """Return the first multiple of the alignment that is not below `place`."""
    return -(-place // alignment) * alignment


def _bounded(size: int) -> int | None:
    return size if size < _LARGEST else None
