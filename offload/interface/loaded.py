"""A shared library in this process: its symbols, calls, the runtime's settings, and its end."""

from __future__ import annotations

import _ctypes
import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlir_offload.offload.interface.protected_call import CALL_SYMBOL, ProtectedCall
from mlir_offload.toolchain.errors import (
    CompatibilityError,
    InputOutputError,
    UsageError,
    VerificationError,
)


class LoadedLibrary:
    """A library that the dynamic linker has loaded."""

    def __init__(self, path: Path, name: str) -> None:
        """Load it, called `name` in messages. Raises InputOutputError where the dynamic linker cannot."""
        self.path = path
        self.name = name
        try:
            self._symbols: Any = ctypes.CDLL(str(path.absolute()), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            msg = f"{path}: cannot be loaded: {error}"
            hint = "look for what is missing with ldd"
            raise InputOutputError(msg, hint=hint) from error
        # Without device code, and from older releases, a library has none.
        found = getattr(self._symbols, CALL_SYMBOL, None)
        self._protected = None if found is None else ProtectedCall(found)

    def symbol(self, name: str) -> Any:
        """Return a function of C. Raises VerificationError where the library lacks it."""
        try:
            return self._open()[name]
        except AttributeError as error:
            msg = f"{self.path}: the symbol {name} is not exported"
            raise VerificationError(
                msg, hint="link without a version script that hides it"
            ) from error

    def call(self, entry: Any, given: Sequence[Any], stream: int | None = None) -> Any:
        """Call a function with ctypes values, on a stream where one is given.

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
        """Choose the device of the calling thread; the words are checked by the caller."""
        self._runtime("mlir_offload_set_device")(device.encode())

    def close(self) -> None:
        """Unload the library. No thread may be in one of its functions."""
        if self._symbols is not None:
            # ctypes has no other way to unload a library.
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
