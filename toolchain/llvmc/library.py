"""Load libLLVM, and call its functions by name."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.llvmc.signature import SIGNATURES

_TYPES: dict[str, type | None] = {
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "l": ctypes.c_ulonglong,
    "q": ctypes.c_longlong,
    "z": ctypes.c_size_t,
    "o": ctypes.c_void_p,
    "a": ctypes.POINTER(ctypes.c_void_p),
    "v": None,
}
_TARGET_PARTS = ("TargetInfo", "Target", "TargetMC", "AsmPrinter", "AsmParser")
Call = Callable[..., int]


class LlvmError(Exception):
    """The error message of a failed call."""


class LlvmLibrary:
    """The C API of one installed release."""

    def __init__(self, path: Path) -> None:
        """Load the library. Raises ToolchainError if it cannot be loaded or lacks a function."""
        try:
            self._library = ctypes.CDLL(str(path))
            self._functions = {name: self._bind(name, code) for name, code in SIGNATURES.items()}
        except (OSError, AttributeError) as error:
            msg = f"cannot use {path} as LLVM's C API: {error}"
            raise ToolchainError(msg, hint="install libllvm of the LLVM release again") from error

    def _bind(self, name: str, code: str) -> Call:
        function = getattr(self._library, f"LLVM{name}")
        function.restype = _TYPES[code[0]]
        function.argtypes = [_TYPES[letter] for letter in code[1:]]
        bound: Call = function
        return bound

    def function(self, name: str) -> Call:
        """Return a function of the API, for repeated calls."""
        return self._functions[name]

    def call(self, name: str, *arguments: object) -> int:
        """Call a function of the API. A null pointer is returned as 0."""
        return self._functions[name](*arguments) or 0

    def take_text(self, message: int) -> str:
        """Return a message of LLVM as text, and dispose of it."""
        text = ctypes.string_at(message).decode("utf-8", "surrogateescape")
        self.call("DisposeMessage", message)
        return text

    def take_buffer(self, buffer: int) -> bytes:
        """Return the content of a memory buffer, and dispose of it."""
        size = self.call("GetBufferSize", buffer)
        content = ctypes.string_at(self.call("GetBufferStart", buffer), size)
        self.call("DisposeMemoryBuffer", buffer)
        return content

    def checked(self, name: str, *arguments: object) -> int:
        """Call a function whose last parameter is an error message, and return its output parameter.

        Raises LlvmError with the message if the call fails.
        """
        outputs = (ctypes.c_void_p(), ctypes.c_void_p())
        wanted = SIGNATURES[name].count("o")
        passed = [ctypes.byref(output) for output in outputs[-wanted:]]
        if self._functions[name](*arguments, *passed):
            message = outputs[1].value
            raise LlvmError(self.take_text(message) if message else f"{name} failed")
        if wanted == 1 and outputs[1].value:
            self.call("DisposeMessage", outputs[1].value)
        return outputs[0].value or 0

    def initialize_x86(self) -> None:
        """Initialize the X86 back end."""
        for part in _TARGET_PARTS:
            getattr(self._library, f"LLVMInitializeX86{part}")()

    @property
    def version(self) -> tuple[int, int, int]:
        """Return the version of the library."""
        parts = [ctypes.c_uint() for _ in range(3)]
        self.call("GetVersion", *map(ctypes.byref, parts))
        return parts[0].value, parts[1].value, parts[2].value


def handles(items: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
    """Return handles as a C array."""
    return (ctypes.c_void_p * len(items))(*items)
