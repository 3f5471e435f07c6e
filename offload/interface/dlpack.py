"""Arrays that are exchanged by DLPack (dlpack.h): PyTorch on the CPU, JAX, and others."""

from __future__ import annotations

import ctypes
from typing import Final

from msgspec import Struct

# DLDeviceType: CUDA and ROCm, and the types of host-accessible memory.
_DEVICES, _HOSTS = frozenset({2, 10}), frozenset({1, 3, 11, 13})
# DLDataTypeCode -> kind of NumPy's array interface.
_KINDS: Final = {0: "i", 1: "u", 2: "f", 4: "V", 5: "c", 6: "b"}
_BFLOAT16 = 4
_FLOAT8: Final = {
    7: "float8_e3m4",
    8: "float8_e4m3",
    9: "float8_e4m3b11fnuz",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
}
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    """DLTensor, with its DLDevice and DLDataType inlined."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DlpackArray(Struct, frozen=True):
    """Memory of a caller; strides are in elements, None for row-major. `owner` keeps it alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    kind: str
    type_name: str
    item_bytes: int
    is_on_device: bool
    owner: object


def read_dlpack(value: object) -> DlpackArray:
    """Return the memory of a value that has `__dlpack__`.

    Raises TypeError if the library refuses to export it, or if its elements are not plain numbers.
    """
    try:
        capsule = value.__dlpack__()  # type: ignore[attr-defined]  # the caller has checked
    except (BufferError, RuntimeError) as error:
        msg = f"it does not export its memory: {error}"
        raise TypeError(msg) from error
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(get_pointer(capsule, _NAME))
    name = "bfloat16" if tensor.code == _BFLOAT16 else _FLOAT8.get(tensor.code, "")
    kind = "V" if name else _KINDS.get(tensor.code)
    known = tensor.device_type in _DEVICES | _HOSTS
    if kind is None or not known or tensor.lanes != 1 or tensor.bits % 8:
        msg = (
            f"its elements (DLPack type {tensor.code} of {tensor.bits} bits) are not plain numbers"
        )
        raise TypeError(msg)
    # The capsule still owns the tensor, and releases it when it is deleted.
    return DlpackArray(
        (tensor.data or 0) + tensor.byte_offset,
        tuple(tensor.shape[: tensor.ndim]),
        tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None,
        kind,
        name or str(getattr(value, "dtype", f"{kind}{tensor.bits // 8}")),
        tensor.bits // 8,
        tensor.device_type in _DEVICES,
        capsule,
    )
