"""Arrays of other Python libraries, seen as memory: address, shape, strides, element type.

Four protocols describe them: `__cuda_array_interface__` (CuPy, PyTorch, Numba), `__array_interface__`
(NumPy), the buffer protocol (array, ctypes, memoryview) and DLPack. None requires the library itself.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from mlir_offload.offload.interface.dlpack import read_dlpack
from mlir_offload.offload.interface.type import Element

_TYPE = re.compile(r"([<>|=])([a-zA-Z])(\d{1,4})")
_BUFFER_KINDS = {
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("efd", "f"),
    "?": "b",
}


class ForeignArray(Struct, frozen=True):
    """Memory of a caller; strides are in bytes. `owner` keeps it alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: str
    item_bytes: int
    is_read_only: bool
    owner: object
    type_name: str
    is_on_device: bool = False

    def holds(self, element: Element) -> bool:
        """Return whether the elements have the type of an MLIR element."""
        if self.item_bytes != element.size_bytes:
            return False
        if element.dtype:
            # Without ml_dtypes, the bits are stored as unsigned integers.
            return self.kind == "u" or self.type_name == element.dtype
        return self.kind in element.kinds


def find_foreign_array(value: object) -> ForeignArray | None:
    """Return the memory of a value; None if it is not an array.

    Raises TypeError for an array whose memory is not accessible.
    """
    for protocol in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(value, protocol, None)
        if isinstance(interface, dict):
            return _of_interface(value, interface, is_on_device="cuda" in protocol)
    try:
        view = memoryview(value)  # type: ignore[arg-type]  # raises TypeError without a buffer
    except TypeError:
        return _of_dlpack(value) if hasattr(value, "__dlpack__") else None
    return _of_buffer(value, view)


def row_by_row(shape: Sequence[int], item_bytes: int) -> tuple[int, ...]:
    """Return the strides of a contiguous row-major array, in bytes."""
    strides: list[int] = []
    for size in reversed(shape):
        strides.append(item_bytes)
        item_bytes *= max(size, 1)
    return tuple(reversed(strides))


def _of_interface(value: object, interface: dict[str, Any], *, is_on_device: bool) -> ForeignArray:
    match = _TYPE.fullmatch(interface["typestr"])
    data = interface.get("data")
    if match is None or match[1] == ">" or data is None or interface.get("mask") is not None:
        msg = f"its elements ({interface['typestr']}) are not plain numbers of this machine"
        raise TypeError(msg)
    shape, size = tuple(interface["shape"]), int(match[3])
    name = str(getattr(value, "dtype", interface["typestr"]))
    # Any structure of that size is also `V`; only the type name identifies numbers.
    kind = match[2]
    strides = interface.get("strides") or row_by_row(shape, size)
    return ForeignArray(
        data[0], shape, tuple(strides), kind, size, bool(data[1]), value, name, is_on_device
    )


def _of_dlpack(value: object) -> ForeignArray:
    array = read_dlpack(value)
    size = array.item_bytes
    strides = (
        row_by_row(array.shape, size)
        if array.strides is None
        else tuple(stride * size for stride in array.strides)
    )
    return ForeignArray(
        array.address,
        array.shape,
        strides,
        array.kind,
        size,
        is_read_only=False,
        owner=array.owner,
        type_name=array.type_name,
        is_on_device=array.is_on_device,
    )


def _of_buffer(value: object, view: memoryview) -> ForeignArray:
    kind = _BUFFER_KINDS.get(view.format.lstrip("@=<"))
    if kind is None or view.format.startswith((">", "!")) or not view.c_contiguous:
        msg = f"its memory (format {view.format}) is not numbers of this machine in a row"
        raise TypeError(msg)
    shape = view.shape or ()
    address = 0
    if view.nbytes and not view.readonly:
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    return ForeignArray(
        address,
        shape,
        row_by_row(shape, view.itemsize),
        kind,
        view.itemsize,
        view.readonly,
        view,
        f"{type(value).__name__} of '{view.format}'",
    )
