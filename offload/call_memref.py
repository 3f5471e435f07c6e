"""Memrefs between Python and MLIR: descriptors of arrays, arrays of descriptors."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlir_offload.offload.foreign_array import ForeignArray, find_foreign_array, row_by_row
from mlir_offload.offload.interface_type import Element, MemrefType, UnrankedType
from mlir_offload.toolchain.errors import MlirOffloadError, ToolchainError

_POINTER_BITS = 64
# What memref.get_global writes for memory that nobody may free (MLIR, MemRefToLLVM).
_CONSTANT = 0xDEADBEEF
_HEAD_WORDS = 3


class ArgumentTypeError(MlirOffloadError, TypeError):
    """An argument is of another type than the function takes."""

    exit_status = 2


class ArgumentValueError(MlirOffloadError, ValueError):
    """An argument has a shape, a layout or a value that the function does not take."""

    exit_status = 2


@dataclass(slots=True)
class Passed:
    """The memory that goes into one call: nothing of it may die before the call is over."""

    owners: dict[int, object] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)


def describe_array(
    memref: MemrefType | UnrankedType, value: object, where: str, passed: Passed
) -> ctypes.Array[Any]:
    """Return the descriptor of a caller's array.

    Raises ArgumentTypeError or ArgumentValueError where the function must not get the array.
    """
    array = _checked_array(memref, value, where)
    size = memref.element.size_bytes
    if isinstance(memref, UnrankedType):
        inner = _descriptor(array.address, 0, array.shape, _in_elements(array, size, where))
        passed.kept.append(inner)
        passed.owners[array.address] = array.owner
        rank = len(array.shape)
        return (ctypes.c_int64 * 2)(rank, _signed(ctypes.addressof(inner)))
    _check_shape(memref, array, where)
    strides = _laid_out(memref, array, where)
    offset = memref.offset or 0
    start = array.address - offset * size
    passed.owners[start] = array.owner
    return _descriptor(start, offset, array.shape, strides)


def _checked_array(memref: MemrefType | UnrankedType, value: object, where: str) -> ForeignArray:
    wanted = f"{where} is {memref.spelling}"
    try:
        array = find_foreign_array(value)
    except TypeError as error:
        msg = f"{wanted}: {error}"
        raise ArgumentTypeError(msg, hint="pass an array of plain numbers") from error
    if array is None:
        msg = f"{wanted}, not {type(value).__name__}"
        raise ArgumentTypeError(msg, hint="pass a NumPy array, or another one with a buffer")
    if not array.holds(memref.element):
        msg = f"{wanted}: its elements are {memref.element.spelling}, not {array.type_name}"
        raise ArgumentTypeError(msg, hint="convert the array, for example by .astype(...)")
    if array.is_read_only:
        msg = f"{wanted}: the array is read-only, and the function may write to it"
        raise ArgumentValueError(msg, hint="pass a copy")
    if array.address % memref.element.size_bytes and not memref.element.is_complex:
        msg = f"{wanted}: the array begins at an address that is no multiple of its element's size"
        raise ArgumentValueError(msg, hint="pass a copy")
    return array


def _check_shape(memref: MemrefType, array: ForeignArray, where: str) -> None:
    fits = len(array.shape) == memref.rank and all(
        wanted in {None, size} for wanted, size in zip(memref.shape, array.shape, strict=True)
    )
    if not fits:
        msg = f"{where} is {memref.spelling}: the array has shape {array.shape}"
        raise ArgumentValueError(msg, hint=f"pass an array of {memref.rank} dimensions that fits")


def _laid_out(memref: MemrefType, array: ForeignArray, where: str) -> list[int]:
    """Return the strides for the descriptor, in elements; compiled code knows the static ones."""
    size = memref.element.size_bytes
    dense = [stride // size for stride in row_by_row(array.shape, size)]
    wanted = dense if memref.strides is None else memref.strides
    given = _in_elements(array, size, where)
    is_empty = 0 in array.shape
    strides = []
    for expected, stride, extent in zip(wanted, given, array.shape, strict=True):
        if expected not in {None, stride} and extent > 1 and not is_empty:
            layout = "row by row, without gaps" if memref.strides is None else str(memref.strides)
            msg = f"{where} is {memref.spelling}: its layout is {layout}, the array's strides are {tuple(given)}"
            raise ArgumentValueError(msg, hint="pass a copy: numpy.ascontiguousarray(...)")
        strides.append(stride if expected is None else expected)
    return strides


def _in_elements(array: ForeignArray, size: int, where: str) -> list[int]:
    if any(stride % size for stride in array.strides):
        msg = f"{where}: the array's strides {array.strides} are no multiples of its element's size"
        raise ArgumentValueError(msg, hint="pass a copy")
    return [stride // size for stride in array.strides]


def _descriptor(
    address: int, offset: int, sizes: Sequence[int], strides: Sequence[int]
) -> ctypes.Array[Any]:
    words = [_signed(address), _signed(address), offset, *sizes, *strides]
    return (ctypes.c_int64 * len(words))(*words)


def _signed(address: int) -> int:
    return address - (1 << _POINTER_BITS) if address >> (_POINTER_BITS - 1) else address


def _unsigned(word: int) -> int:
    return word % (1 << _POINTER_BITS)


class _Memory:
    """What NumPy reads to make an array of returned memory; the array keeps it alive."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


@dataclass(slots=True)
class Returned:
    """The memrefs that one call returned; memory that several of them share is freed once."""

    passed: Passed
    _owners: dict[int, object] = field(default_factory=dict)

    def take(self, element: Element, rank: int, words: Sequence[int]) -> Any:
        """Return the NumPy array of a descriptor; its memory is freed with the last array of it."""
        np = load_numpy()
        allocated, aligned, offset = _unsigned(words[0]), _unsigned(words[1]), words[2]
        shape, strides = words[3 : 3 + rank], words[3 + rank : 3 + 2 * rank]
        size = element.size_bytes
        kind = "u" if element.kinds == "V" else element.kinds[0]
        owner = self._owner(allocated)
        memory = _Memory(
            {
                "version": 3,
                "shape": tuple(shape),
                "strides": tuple(stride * size for stride in strides),
                "typestr": f"{'|' if size == 1 else '<'}{kind}{size}",
                "data": (aligned + offset * size, allocated == _CONSTANT),
            }
        )
        memory.owner = owner  # type: ignore[attr-defined]  # lives as long as the array
        if 0 in shape:
            return np.empty(tuple(shape), memory.__array_interface__["typestr"])
        array = np.asarray(memory)
        return _as_bfloat16(array) if element.kinds == "V" else array

    def _owner(self, allocated: int) -> object:
        """Return what the memory lives by: an argument, or an object that frees it with itself."""
        if allocated in self._owners:
            return self._owners[allocated]
        owner = self.passed.owners.get(allocated)
        if owner is None and allocated != _CONSTANT:
            owner = _Freed(allocated)
        self._owners[allocated] = owner
        return owner

    def take_unranked(self, element: Element, rank: int, address: int) -> Any:
        """Return the NumPy array of an unranked memref, and free its descriptor."""
        words = (ctypes.c_int64 * (_HEAD_WORDS + 2 * rank)).from_address(_unsigned(address))
        copied = list(words)
        free(_unsigned(address))
        return self.take(element, rank, copied)


class _Freed:
    """Memory from malloc, given back with this object."""

    def __init__(self, address: int) -> None:
        weakref.finalize(self, free, address).atexit = False


def free(address: int) -> None:
    """Give memory from malloc back."""
    _libc().free(ctypes.c_void_p(address))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def load_numpy() -> Any:
    """Return NumPy. Raises ToolchainError where it is not installed."""
    try:
        import numpy as np
    except ImportError as error:
        msg = "the function returns an array, which needs NumPy"
        raise ToolchainError(msg, hint="pip install 'mlir-offload[numpy]'") from error
    return np


def _as_bfloat16(array: Any) -> Any:
    """Return the array as bfloat16 where ml_dtypes has that type, else as its bits."""
    try:
        import ml_dtypes
    except ImportError:
        return array
    return array.view(ml_dtypes.bfloat16)


def needs_numpy(types: Iterable[object]) -> bool:
    """Return whether a result is an array."""
    return any(isinstance(item, MemrefType | UnrankedType) for item in types)
