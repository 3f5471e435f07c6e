"""Convert memrefs between Python and MLIR: descriptors of arrays, arrays of descriptors."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.offload.interface.foreign_array import (
    ForeignArray,
    find_foreign_array,
    row_by_row,
)
from mlir_offload.offload.interface.type import Element, MemrefType, UnrankedType
from mlir_offload.toolchain.errors import MlirOffloadError, ToolchainError

_POINTER_BITS = 64
# The allocated pointer that memref.get_global stores for memory that must not be freed (MLIR, MemRefToLLVM).
_CONSTANT = 0xDEADBEEF
_HEAD_WORDS = 3


class ArgumentTypeError(MlirOffloadError, TypeError):
    """An argument has a different type than the function takes."""

    exit_status = 2


class ArgumentValueError(MlirOffloadError, ValueError):
    """An argument has a shape, a layout or a value that the function does not accept."""

    exit_status = 2


class Passed(Struct):
    """The memory that is passed to one call; it must stay alive until the call returns."""

    owners: dict[int, object] = field(default_factory=dict)
    on_device: set[int] = field(default_factory=set)
    kept: list[object] = field(default_factory=list)

    def note(self, allocated: int, array: ForeignArray) -> None:
        """Keep the owner of an array, whose descriptor contains this address as the allocated pointer."""
        self.owners[allocated] = array.owner
        if array.is_on_device:
            self.on_device.add(allocated)


def describe_array(
    memref: MemrefType | UnrankedType, value: object, where: str, passed: Passed
) -> ctypes.Array[Any]:
    """Return the descriptor of a caller's array.

    Raises ArgumentTypeError or ArgumentValueError if the array does not match the memref type.
    """
    array = _with_vectors(_checked_array(memref, value, where), memref, where)
    size = memref.element.size_bytes
    if isinstance(memref, UnrankedType):
        inner = _descriptor(array.address, 0, array.shape, _in_elements(array, size, where))
        passed.kept.append(inner)
        passed.note(array.address, array)
        rank = len(array.shape)
        return (ctypes.c_int64 * 2)(rank, _signed(ctypes.addressof(inner)))
    _check_shape(memref, array, where)
    strides = _laid_out(memref, array, where)
    offset = memref.offset or 0
    start = array.address - offset * size
    passed.note(start, array)
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
    number = memref.element.number
    if not array.holds(number):
        msg = f"{wanted}: its elements are {number.spelling}, not {array.type_name}"
        raise ArgumentTypeError(msg, hint="convert the array, for example by .astype(...)")
    if array.is_read_only:
        msg = f"{wanted}: the array is read-only, and the function may write to it"
        raise ArgumentValueError(msg, hint="pass a copy")
    alignment = memref.element.align_bytes
    if array.address % alignment:
        msg = (
            f"{wanted}: the array begins at an address that is not a multiple of its element's size"
        )
        hint = f"pass memory that begins at a multiple of {alignment} bytes, such as a copy"
        raise ArgumentValueError(msg, hint=hint)
    return array


def _with_vectors(
    array: ForeignArray, memref: MemrefType | UnrankedType, where: str
) -> ForeignArray:
    """Return the array with its last dimensions interpreted as the lanes of the memref's vectors."""
    element = memref.element
    count = len(element.lanes)
    if not count:
        return array
    shape, strides = array.shape[-count:], array.strides[-count:]
    fits = shape == element.lanes and all(
        size == 1 or stride == wanted
        for size, stride, wanted in zip(shape, strides, element.lane_strides, strict=True)
    )
    if not fits:
        msg = (
            f"{where} is {memref.spelling}: the last dimensions of the array have shape {shape} and "
            f"strides {strides}, not {element.lanes} and {element.lane_strides}"
        )
        raise ArgumentValueError(msg, hint="give it a dimension more for each one of the vector")
    return replace(
        array,
        shape=array.shape[:-count],
        strides=array.strides[:-count],
        item_bytes=element.size_bytes,
    )


def _check_shape(memref: MemrefType, array: ForeignArray, where: str) -> None:
    fits = len(array.shape) == memref.rank and all(
        wanted in {None, size} for wanted, size in zip(memref.shape, array.shape, strict=True)
    )
    if not fits:
        msg = f"{where} is {memref.spelling}: the array has shape {array.shape}"
        raise ArgumentValueError(msg, hint=f"pass an array of {memref.rank} dimensions that fits")


def _laid_out(memref: MemrefType, array: ForeignArray, where: str) -> list[int]:
    """Return the strides for the descriptor, in elements; compiled code assumes the static ones."""
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
        msg = (
            f"{where}: the array's strides {array.strides} are not multiples of its element's size"
        )
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
    """The array interface by which NumPy makes an array of returned memory; the array keeps it alive."""

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


class DeviceArray:
    """GPU memory that a function returned: an array for CuPy, PyTorch and Numba."""

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        """Store the CUDA array interface, version 3, and the owner of the memory."""
        self.__cuda_array_interface__ = interface
        self.shape: tuple[int, ...] = interface["shape"]
        self.owner = owner

    def __repr__(self) -> str:
        return f"<array of shape {self.shape} on a GPU>"


class Returned(Struct):
    """The memrefs that one call returned; memory that several of them share is freed once."""

    passed: Passed
    _owners: dict[int, object] = field(default_factory=dict)

    def take(self, element: Element, rank: int, words: Sequence[int]) -> Any:
        """Return the NumPy array of a descriptor; its memory is freed with the last array that uses it."""
        allocated, aligned, offset = _unsigned(words[0]), _unsigned(words[1]), words[2]
        shape, strides = words[3 : 3 + rank], words[3 + rank : 3 + 2 * rank]
        size, number = element.size_bytes, element.number
        kind = "u" if element.dtype else element.kinds[0]
        lane_strides = element.lane_strides if element.lanes else ()
        owner = self._owner(allocated)
        interface = {
            "version": 3,
            "shape": (*shape, *element.lanes),
            "strides": (*(stride * size for stride in strides), *lane_strides),
            "typestr": f"{'|' if number.size_bytes == 1 else '<'}{kind}{number.size_bytes}",
            "data": (aligned + offset * size, allocated == _CONSTANT),
        }
        if allocated in self.passed.on_device:
            return DeviceArray(interface, owner)
        np = load_numpy()
        if 0 in shape:
            return np.empty(interface["shape"], interface["typestr"])
        array = np.asarray(_Memory(interface, owner))
        return _as_named(array, element.dtype) if element.dtype else array

    def _owner(self, allocated: int) -> object:
        """Return the owner of the memory: an argument, or an object that frees it when it is deleted."""
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
    """Memory from malloc, freed when this object is deleted."""

    def __init__(self, address: int) -> None:
        weakref.finalize(self, free, address).atexit = False


def free(address: int) -> None:
    """Free memory from malloc."""
    _libc().free(ctypes.c_void_p(address))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def load_numpy() -> Any:
    """Return NumPy. Raises ToolchainError if it is not installed."""
    try:
        import numpy as np
    except ImportError as error:
        msg = "the function returns an array, which needs NumPy"
        raise ToolchainError(msg, hint="pip install 'mlir-offload[numpy]'") from error
    return np


def _as_named(array: Any, dtype: str) -> Any:
    """Return the array with the type of ml_dtypes, or unchanged, as bits, if ml_dtypes does not have it."""
    try:
        import ml_dtypes
    except ImportError:
        return array
    found = getattr(ml_dtypes, dtype, None)
    return array if found is None else array.view(found)


def needs_numpy(types: Iterable[object]) -> bool:
    """Return whether a result is an array."""
    return any(isinstance(item, MemrefType | UnrankedType) for item in types)
