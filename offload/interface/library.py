"""Shared libraries compiled by mlir-offload, whose functions are called from Python.

A library embeds the signatures of its functions (see `interface`), so that a wrong call raises an error
instead of crashing. Only modules for calls are imported, not the compiler.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

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
from mlir_offload.offload.interface.call_result import (
    from_memory,
    from_register,
    is_in_memory,
    memory_words,
    register_type,
)
from mlir_offload.offload.interface.call_scalar import pass_scalar, stream_handle
from mlir_offload.offload.interface.function import InterfaceFunction, read_interface
from mlir_offload.offload.interface.loaded import LoadedLibrary
from mlir_offload.offload.interface.type import (
    InterfaceType,
    MemrefType,
    ScalarType,
    UnrankedType,
)
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.errors import CompatibilityError, UsageError
from mlir_offload.toolchain.target import DEVICE_KINDS

_GPUS = [kind.word for kind in DEVICE_KINDS if not kind.is_cpu]
# mlir_offload_set_device exits the process for other words.
_DEVICE = re.compile(rf"host|(?:{'|'.join(_GPUS)})(?::[0-9]{{1,9}})?")
_PYTHON_TYPES = {"b": bool, "f": float, "V": float, "c": complex}


class Function:
    """A function of a library, which is called with arrays and numbers."""

    def __init__(self, library: LoadedLibrary, interface: InterfaceFunction) -> None:
        """Look up the symbol of the C wrapper. Raises VerificationError if there is none."""
        self.interface = interface
        self.__name__ = interface.name
        self.__doc__ = f"{interface.signature}\n\nA function of {library.name}."
        self.__signature__ = _signature(interface)
        self._library = library
        self._entry = library.symbol(interface.symbol)
        self._in_memory = is_in_memory(interface.results)
        self._entry.restype = None if self._in_memory else register_type(interface.results)

    def __repr__(self) -> str:
        return f"<function {self.interface.signature} of {self._library.name}>"

    def __call__(self, *arguments: object, stream: object = None, **named: object) -> Any:
        """Call the function; its GPU work runs on `stream` if one is passed.

        Returns None, the result, or a tuple of results. Raises ArgumentTypeError or ArgumentValueError before
        anything runs, MlirOffloadRuntimeError if the call fails.
        """
        values = self._bound(arguments, named)
        results = self.interface.results
        if needs_numpy(results):
            load_numpy()
        passed = Passed()
        given: list[Any] = []
        memory = (ctypes.c_int64 * memory_words(results))() if self._in_memory else None
        if memory is not None:
            given.append(ctypes.c_void_p(ctypes.addressof(memory)))
        for argument, value in zip(self.interface.arguments, values, strict=True):
            where = f"{self.interface.name}: argument {argument.name}"
            given += _passed(argument.type, value, where, passed)
        handle = None if stream is None else stream_handle(stream, f"{self.__name__}: stream")
        returned = self._library.call(self._entry, given, handle)
        if memory is not None:
            return from_memory(results, bytes(memory), Returned(passed))
        return from_register(results, returned)

    def _bound(self, arguments: Sequence[object], named: Mapping[str, object]) -> Sequence[object]:
        try:
            return tuple(self.__signature__.bind(*arguments, **named).arguments.values())
        except TypeError as error:
            msg = f"{self.interface.name}: {error}"
            hint = f"it is {self.interface.signature}"
            raise ArgumentTypeError(msg, hint=hint) from error


class Library(Mapping[str, Function]):
    """The functions of a shared library, as attributes and by name.

    `close`, or the end of a `with` statement, unloads it; otherwise it stays loaded. Memory that it returned,
    except constants, may be used afterwards.
    """

    def __init__(
        self, path: Path, interface: Sequence[InterfaceFunction], *, name: str = ""
    ) -> None:
        """Load the library, called `name` in messages. Raises InputOutputError if that fails."""
        self.path = path
        self.name = name or path.name
        self._interface = {function.name: function for function in interface}
        self._loaded = LoadedLibrary(path, self.name)
        self._functions = {
            name: Function(self._loaded, function)
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
            msg = f"{self.name} has no function '{name}'; it has: {known}"
            raise AttributeError(msg)
        if name not in self._functions:
            function = self._interface[name]
            msg = f"{self.name}: {function.signature} cannot be called: {function.problem}"
            raise AttributeError(msg)
        return self._functions[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in self._functions if name.isidentifier())]

    def __repr__(self) -> str:
        return f"<library {self.name}: {', '.join(self._functions) or 'no functions'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Unload the library. No thread may be running one of its functions."""
        self._loaded.close()

    @property
    def is_closed(self) -> bool:
        """Return whether the library was unloaded."""
        return self._loaded.is_closed

    def set_device(self, device: str) -> None:
        """Select the device of the calling thread: "host", "cuda", "cuda:1" or "hip".

        Raises UsageError for another word. If the device does not exist, the next call raises
        MlirOffloadRuntimeError.
        """
        if _DEVICE.fullmatch(device) is None:
            msg = f"unknown device '{device}'"
            words = ", ".join(f"'{word}', '{word}:N'" for word in _GPUS)
            raise UsageError(msg, hint=f"write {words} (N counts the GPUs from 0) or 'host'")
        self._loaded.set_device(device)


def load(path: str | os.PathLike[str]) -> Library:
    """Load a shared library and return its functions.

    Raises InputOutputError, VerificationError or CompatibilityError if it is not a shared library, or has no
    functions with `llvm.emit_c_interface`.
    """
    file = Path(path)
    if file.suffix == ".mlir":
        msg = f"{file} is a program, not a library"
        raise UsageError(msg, hint=f"mlir_offload.compile({str(path)!r}) compiles and loads it")
    interface = interface_of(file)
    if not interface:
        msg = f"{file} contains no functions with llvm.emit_c_interface"
        hint = "give functions attributes {llvm.emit_c_interface}; link with mlir-offload -shared -fPIC"
        raise CompatibilityError(msg, hint=hint)
    return Library(file, interface)


def interface_of(file: Path) -> tuple[InterfaceFunction, ...]:
    """Return the functions of a shared library. Raises MlirOffloadError if it is not one."""
    with open_view(file) as view:
        elf = read_elf(view)
        _check_loadable(elf, file)
        return read_interface(elf)


def _check_loadable(elf: ElfFile, file: Path) -> None:
    if elf.type != ElfType.SHARED:
        msg = f"{file}: it is not a shared library"
        raise CompatibilityError(msg, hint=f"mlir-offload -shared -fPIC {file.name} -o lib.so")


def _signature(interface: InterfaceFunction) -> inspect.Signature:
    """Return the signature; arguments are positional-only if a name conflicts with `stream`."""
    names = [_python_name(argument.name) for argument in interface.arguments]
    if len(set(names)) < len(names):
        names = [f"arg{number}" for number in range(len(names))]
    # `stream` is a keyword of the call itself.
    is_clear = "stream" not in names
    parameter = inspect.Parameter
    kind = parameter.POSITIONAL_OR_KEYWORD if is_clear else parameter.POSITIONAL_ONLY
    types = [_annotation(argument.type) for argument in interface.arguments]
    parameters = [
        parameter(name, kind, annotation=item) for name, item in zip(names, types, strict=True)
    ]
    results = [_annotation(item) for item in interface.results]
    only = results[0] if len(results) == 1 else tuple(results) or None
    return inspect.Signature(parameters, return_annotation=only)


def _annotation(item: InterfaceType) -> object:
    """Return the Python type of a number; for arrays and streams, the MLIR type as a string."""
    if isinstance(item, ScalarType):
        return _PYTHON_TYPES.get(item.element.kinds, int)
    return item.spelling


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
            return [ctypes.c_void_p(ctypes.addressof(descriptor))]
        case _:
            return [ctypes.c_void_p(0 if value is None else stream_handle(value, where))]


__all__ = ["ArgumentTypeError", "ArgumentValueError", "Function", "Library", "load"]
