"""A shared library loaded into this process: symbols, calls, runtime settings, unloading.

Errors of the runtime are raised as exceptions: the function `mlir_offload_call` of the library
(mlir_offload.h) makes the call, and returns where the runtime would otherwise exit the process.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlir_offload.toolchain.errors import (
    CompatibilityError,
    InputOutputError,
    MlirOffloadRuntimeError,
    UsageError,
    VerificationError,
)

CALL_SYMBOL = "mlir_offload_call"
_REPORT_BYTES = 4096
_HEAD, _HINT = "mlir-offload: error: ", "hint: "
_FLOATS = (ctypes.c_float, ctypes.c_double)
_NOT_CALLED = -1


class LoadedLibrary:
    """A library that the dynamic linker has loaded."""

    def __init__(self, path: Path, name: str) -> None:
        """Load the library, called `name` in messages. Raises InputOutputError if the dynamic linker fails."""
        self.path = path
        self.name = name
        try:
            self._symbols: Any = ctypes.CDLL(str(path.absolute()), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            msg = f"{path}: cannot be loaded: {error}"
            hint = "look for what is missing with ldd"
            raise InputOutputError(msg, hint=hint) from error
        # Libraries without device code, and those of older releases, do not define the symbol.
        found = getattr(self._symbols, CALL_SYMBOL, None)
        self._protected = None if found is None else ProtectedCall(found)

    def symbol(self, name: str) -> Any:
        """Return a C function. Raises VerificationError if the library does not export it."""
        try:
            return self._open()[name]
        except AttributeError as error:
            msg = f"{self.path}: the symbol {name} is not exported"
            raise VerificationError(
                msg, hint="link without a version script that hides it"
            ) from error

    def call(self, entry: Any, given: Sequence[Any], stream: int | None = None) -> Any:
        """Call a function with ctypes values, on a stream if one is passed.

        Raises MlirOffloadRuntimeError for an error of the runtime, UsageError after `close`.
        """
        self._open()
        if stream is not None:
            return self._call_on_stream(stream, entry, given)
        return entry(*given) if self._protected is None else self._protected(entry, given)

    def _call_on_stream(self, stream: int, entry: Any, given: Sequence[Any]) -> Any:
        set_stream = self._runtime("mlir_offload_set_stream")
        get_stream = self._runtime("mlir_offload_get_stream")
        get_stream.restype = ctypes.c_void_p
        before = get_stream()
        set_stream(ctypes.c_void_p(stream))
        try:
            return self.call(entry, given)
        finally:
            set_stream(ctypes.c_void_p(before))

    def set_device(self, device: str) -> None:
        """Select the device of the calling thread; the caller has validated the word."""
        self._runtime("mlir_offload_set_device")(device.encode())

    def close(self) -> None:
        """Unload the library. No thread may be running one of its functions."""
        if self._symbols is not None:
            # ctypes provides no other way to unload a library.
            handle, self._symbols = self._symbols._handle, None  # noqa: SLF001
            _ctypes.dlclose(handle)

    @property
    def is_closed(self) -> bool:
        """Return whether `close` was called."""
        return self._symbols is None

    def _open(self) -> Any:
        if self._symbols is None:
            msg = f"{self.name} was closed"
            raise UsageError(msg, hint="call its functions before close() or the end of `with`")
        return self._symbols

    def _runtime(self, name: str) -> Any:
        try:
            return self._open()[name]
        except AttributeError as error:
            msg = f"{self.name} contains no device code: it has neither streams nor devices"
            raise CompatibilityError(msg, hint="leave out the stream and the device") from error


class ProtectedCall:
    """Calls the functions of one library through its `mlir_offload_call`."""

    def __init__(self, call: Any) -> None:
        """Store the library's `mlir_offload_call`."""
        call.restype = ctypes.c_int
        self._call = call

    def __call__(self, entry: Any, given: Sequence[Any]) -> Any:
        """Call a function with ctypes values and return its result, converted to its `restype`.

        Raises MlirOffloadRuntimeError for an error of the runtime. Memory that the function allocated before
        the error is leaked.
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
    """Return the register content for a value, extended as a C caller does."""
    is_signed = getattr(type(value), "_type_", "") in set("bhilq")
    return int.from_bytes(bytes(value), "little", signed=is_signed) % (1 << 64)


def _converted(kind: type[Any], word: ctypes.c_uint64) -> Any:
    value = kind.from_buffer_copy(bytes(word)[: ctypes.sizeof(kind)])
    # Like ctypes, convert ctypes' own types and return instances of subclasses.
    return value.value if kind.__module__ == "ctypes" else value


def _error(report: str) -> MlirOffloadRuntimeError:
    head, *rest = report.splitlines() or [""]
    lines = [line.strip() for line in rest]
    hint = next((line.removeprefix(_HINT) for line in lines if line.startswith(_HINT)), "")
    context = [line for line in lines if not line.startswith(_HINT)]
    return MlirOffloadRuntimeError("; ".join((head.removeprefix(_HEAD), *context)), hint=hint)
