"""Shared libraries made by mlir-offload, their functions called from Python.

A library says itself which functions it has and what they take (see `interface`), so that a wrong
call is an error of Python, not a crash. Only what a call needs is imported: no compiler.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlir_offload.offload.elf import ElfFile, ElfType, read_elf
from mlir_offload.offload.interface.call_memref import (
    ArgumentTypeError,
    ArgumentValueError,
    Passed,
    Returned,
    describe_array,
    load_numpy,
    needs_numpy,
)
from mlir_offload.offload.interface.call_scalar import (
    pass_scalar,
    result_type,
    stream_handle,
    take_bytes,
    take_register,
)
from mlir_offload.offload.interface.function import InterfaceFunction, read_interface
from mlir_offload.offload.interface.type import (
    InterfaceType,
    MemrefType,
    ScalarType,
    TokenType,
    UnrankedType,
)
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.errors import (
    CompatibilityError,
    InputOutputError,
    UsageError,
    VerificationError,
)
from mlir_offload.toolchain.target import DEVICE_WORDS, Kind

_GPUS = [word for kind, word in DEVICE_WORDS.items() if kind is not Kind.OPENMP]
# mlir_offload_set_device ends the process for other words.
_DEVICE = re.compile(rf"host|(?:{'|'.join(_GPUS)})(?::[0-9]{{1,9}})?")
_WORD_BYTES = 8


class Function:
    """A function of a library, called with arrays and numbers."""

    def __init__(self, library: Library, interface: InterfaceFunction) -> None:
        """Take the symbol of the C wrapper. Raises VerificationError where there is none."""
        self.interface = interface
        self.__name__ = interface.name
        self.__doc__ = f"{interface.signature}\n\nA function of {library.path.name}."
        self.__signature__ = _signature(interface)
        self._library = library
        self._entry = library.symbol(interface.symbol)
        self._in_memory = _is_in_memory(interface.results)
        self._entry.restype = None if self._in_memory else _register(interface.results)

    def __repr__(self) -> str:
        return f"<function {self.interface.signature} of {self._library.path.name}>"

    def __call__(self, *arguments: object, stream: object = None, **named: object) -> Any:
        """Call it; its GPU work runs on the stream where one is given.

        Returns None, the result, or a tuple of results. Raises ArgumentTypeError or
        ArgumentValueError before anything runs.
        """
        values = self._bound(arguments, named)
        results = self.interface.results
        if needs_numpy(results):
            load_numpy()
        passed = Passed()
        given: list[Any] = []
        memory = (ctypes.c_int64 * _layout(results)[1])() if self._in_memory else None
        if memory is not None:
            given.append(ctypes.byref(memory))
        for argument, value in zip(self.interface.arguments, values, strict=True):
            where = f"{self.interface.name}: argument {argument.name}"
            given += _passed(argument.type, value, where, passed)
        if stream is None:
            returned = self._entry(*given)
        else:
            handle = stream_handle(stream, f"{self.interface.name}: stream")
            returned = self._library.call_on_stream(handle, self._entry, given)
        if memory is not None:
            return _from_memory(results, bytes(memory), Returned(passed))
        return _from_register(results, returned)

    def _bound(self, arguments: Sequence[object], named: Mapping[str, object]) -> Sequence[object]:
        try:
            return tuple(self.__signature__.bind(*arguments, **named).arguments.values())
        except TypeError as error:
            msg = f"{self.interface.name}: {error}"
            hint = f"it is {self.interface.signature}"
            raise ArgumentTypeError(msg, hint=hint) from error


class Library(Mapping[str, Function]):
    """The functions of a shared library, as attributes and by name."""

    def __init__(self, path: Path, interface: Sequence[InterfaceFunction]) -> None:
        """Load the library. Raises InputOutputError where the dynamic linker cannot."""
        self.path = path
        self._interface = {function.name: function for function in interface}
        try:
            self._loaded = ctypes.CDLL(str(path.absolute()), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            msg = f"{path}: cannot be loaded: {error}"
            hint = "look for what is missing with ldd"
            raise InputOutputError(msg, hint=hint) from error
        self._functions = {
            name: Function(self, function)
            for name, function in self._interface.items()
            if not function.problem
        }

    def __getitem__(self, name: str) -> Function:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __getattr__(self, name: str) -> Function:
        if name.startswith("__") or name not in self._interface:
            known = ", ".join(self._functions) or "none"
            msg = f"{self.path.name} has no function '{name}'; it has: {known}"
            raise AttributeError(msg)
        if name not in self._functions:
            function = self._interface[name]
            msg = f"{self.path.name}: {function.signature} cannot be called: {function.problem}"
            raise AttributeError(msg)
        return self._functions[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in self._functions if name.isidentifier())]

    def __repr__(self) -> str:
        return f"<library {self.path.name}: {', '.join(self._functions) or 'no functions'}>"

    def set_device(self, device: str) -> None:
        """Choose the device of the calling thread: "host", "cuda", "cuda:1" or "hip".

        Raises UsageError for another word. A device that is not there ends the process at the next
        call, as every error of the runtime does.
        """
        if _DEVICE.fullmatch(device) is None:
            msg = f"unknown device '{device}'"
            words = ", ".join(f"'{word}', '{word}:N'" for word in _GPUS)
            raise UsageError(msg, hint=f"write {words} (N counts the GPUs from 0) or 'host'")
        self._runtime("mlir_offload_set_device")(device.encode())

    def call_on_stream(self, stream: int, entry: Any, given: Sequence[Any]) -> Any:
        """Call with the stream set for this thread, and set again what was set before."""
        set_stream = self._runtime("mlir_offload_set_stream")
        get_stream = self._runtime("mlir_offload_get_stream")
        get_stream.restype = ctypes.c_void_p
        before = get_stream()
        set_stream(ctypes.c_void_p(stream))
        try:
            return entry(*given)
        finally:
            set_stream(ctypes.c_void_p(before))

    def symbol(self, name: str) -> Any:
        """Return a function of C. Raises VerificationError where the library lacks it."""
        try:
            return self._loaded[name]
        except AttributeError as error:
            msg = f"{self.path}: the symbol {name} is not exported"
            raise VerificationError(
                msg, hint="link without a version script that hides it"
            ) from error

    def _runtime(self, name: str) -> Any:
        try:
            return self._loaded[name]
        except AttributeError as error:
            msg = f"{self.path.name} holds no device code: it has neither streams nor devices"
            raise CompatibilityError(msg, hint="leave out the stream and the device") from error


def load(path: str | os.PathLike[str]) -> Library:
    """Load a shared library and return its functions.

    Raises InputOutputError, VerificationError or CompatibilityError where it is not one, or has no
    functions with `llvm.emit_c_interface`.
    """
    file = Path(path)
    with open_view(file) as view:
        elf = read_elf(view)
        _check_loadable(elf, file)
        interface = read_interface(elf)
    if not interface:
        msg = f"{file}: it says of no function what it takes"
        hint = "give functions attributes {llvm.emit_c_interface}; link with mlir-offload -shared -fPIC"
        raise CompatibilityError(msg, hint=hint)
    return Library(file, interface)


def _check_loadable(elf: ElfFile, file: Path) -> None:
    if elf.type != ElfType.SHARED:
        msg = f"{file}: it is no shared library"
        raise CompatibilityError(msg, hint=f"mlir-offload -shared -fPIC {file.name} -o lib.so")


def _signature(interface: InterfaceFunction) -> inspect.Signature:
    """Return the arguments by name where Python takes the names, all by position else."""
    names = [_python_name(argument.name) for argument in interface.arguments]
    if len(set(names)) < len(names):
        names = [f"arg{number}" for number in range(len(names))]
    # `stream` is the call's own word.
    is_clear = "stream" not in names
    parameter = inspect.Parameter
    kind = parameter.POSITIONAL_OR_KEYWORD if is_clear else parameter.POSITIONAL_ONLY
    return inspect.Signature([parameter(name, kind) for name in names])


def _python_name(name: str) -> str:
    from keyword import iskeyword

    return f"{name}_" if iskeyword(name) else name


def _passed(kind: InterfaceType, value: object, where: str, passed: Passed) -> list[Any]:
    match kind:
        case ScalarType():
            return pass_scalar(kind, value, where)
        case MemrefType() | UnrankedType():
            descriptor = describe_array(kind, value, where, passed)
            passed.kept.append(descriptor)
            return [ctypes.byref(descriptor)]
        case _:
            return [ctypes.c_void_p(0 if value is None else stream_handle(value, where))]


def _is_in_memory(results: Sequence[InterfaceType]) -> bool:
    """Return whether the wrapper writes the results behind its first argument."""
    if len(results) != 1:
        return bool(results)
    only = results[0]
    return isinstance(only, MemrefType | UnrankedType) or (
        isinstance(only, ScalarType) and only.element.is_complex
    )


def _register(results: Sequence[InterfaceType]) -> type[Any] | None:
    if not results:
        return None
    only = results[0]
    return result_type(only.element) if isinstance(only, ScalarType) else ctypes.c_void_p


def _from_register(results: Sequence[InterfaceType], value: Any) -> object:
    if not results or isinstance(results[0], TokenType):
        return value or 0 if results else None
    only = results[0]
    return take_register(only.element, value) if isinstance(only, ScalarType) else value


def _layout(results: Sequence[InterfaceType]) -> tuple[list[int], int]:
    """Return where each result lies in the structure of all, and how many words that has."""
    offsets, end = [], 0
    for item in results:
        size, alignment = _extent(item)
        end = -(-end // alignment) * alignment
        offsets.append(end)
        end += size
    return offsets, -(-end // _WORD_BYTES)


def _extent(item: InterfaceType) -> tuple[int, int]:
    match item:
        case ScalarType():
            size = item.element.size_bytes
            return size, size // 2 if item.element.is_complex else size
        case MemrefType():
            return (3 + 2 * item.rank) * _WORD_BYTES, _WORD_BYTES
        case UnrankedType():
            return 2 * _WORD_BYTES, _WORD_BYTES
        case _:
            return _WORD_BYTES, _WORD_BYTES


def _from_memory(results: Sequence[InterfaceType], content: bytes, returned: Returned) -> Any:
    offsets, _ = _layout(results)
    values = []
    for item, offset in zip(results, offsets, strict=True):
        part = content[offset : offset + _extent(item)[0]]
        words = memoryview(part).cast("q").tolist() if len(part) % _WORD_BYTES == 0 else []
        match item:
            case ScalarType():
                values.append(take_bytes(item.element, part))
            case MemrefType():
                values.append(returned.take(item.element, item.rank, words))
            case UnrankedType():
                values.append(returned.take_unranked(item.element, *words))
            case _:
                values.append(words[0])
    return values[0] if len(values) == 1 else tuple(values)


__all__ = ["ArgumentTypeError", "ArgumentValueError", "Function", "Library", "load"]
