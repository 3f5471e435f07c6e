"""Calls of compiled functions whose runtime errors come back as exceptions.

The library's own `mlir_offload_call` (mlir_offload.h) makes the call: it returns where the runtime would
otherwise end the process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from mlir_offload.toolchain.errors import MlirOffloadRuntimeError

CALL_SYMBOL = "mlir_offload_call"
_REPORT_BYTES = 4096
_HEAD, _HINT = "mlir-offload: error: ", "hint: "
_FLOATS = (ctypes.c_float, ctypes.c_double)
_NOT_CALLED = -1


class ProtectedCall:
    """A way to call the functions of one library."""

    def __init__(self, call: Any) -> None:
        """Take the library's `mlir_offload_call`."""
        call.restype = ctypes.c_int
        self._call = call

    def __call__(self, entry: Any, given: Sequence[Any]) -> Any:
        """Call a function with ctypes values and return what its `restype` makes of the result.

        Raises MlirOffloadRuntimeError for an error of the runtime. The memory that the function had
        allocated until then is lost.
        """
        kind = entry.restype
        classes = _class_of(kind) + "".join(_class_of(type(value)) for value in given)
        words = (ctypes.c_uint64 * len(given))(*map(_word, given))
        result, report = ctypes.c_uint64(), ctypes.create_string_buffer(_REPORT_BYTES)
        address = ctypes.cast(entry, ctypes.c_void_p)
        status = self._call(
            address,
            classes.encode(),
            words,
            ctypes.byref(result),
            report,
            ctypes.c_size_t(_REPORT_BYTES),
        )
        if status == _NOT_CALLED:
            return entry(*given)
        if status:
            raise _error(report.value.decode(errors="replace"))
        return None if kind is None else _converted(kind, result)


def _class_of(kind: type[Any] | None) -> str:
    return "f" if kind is not None and issubclass(kind, _FLOATS) else "i"


def _word(value: Any) -> int:
    """Return a register that holds the value, as a caller in C extends it."""
    is_signed = getattr(type(value), "_type_", "") in set("bhilq")
    return int.from_bytes(bytes(value), "little", signed=is_signed) % (1 << 64)


def _converted(kind: type[Any], word: ctypes.c_uint64) -> Any:
    value = kind.from_buffer_copy(bytes(word)[: ctypes.sizeof(kind)])
    # ctypes converts what has a type of its own, and gives a subclass as it is.
    return value.value if kind.__module__ == "ctypes" else value


def _error(report: str) -> MlirOffloadRuntimeError:
    head, *rest = report.splitlines() or [""]
    lines = [line.strip() for line in rest]
    hint = next((line.removeprefix(_HINT) for line in lines if line.startswith(_HINT)), "")
    context = [line for line in lines if not line.startswith(_HINT)]
    return MlirOffloadRuntimeError("; ".join((head.removeprefix(_HEAD), *context)), hint=hint)
