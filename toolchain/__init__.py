"""Installed tools: their versions, capabilities and targets.

This module also loads the modules of all packages. If a package calls `load_on_use`,
`from package.module import name` loads the module immediately, and `from package import module` loads it
at the first access to `module.name`. An invocation loads more than a hundred modules, and Python takes as long to find
one and its bytecode as to execute it; `_OwnModules` looks only where they are.
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source, spec_from_file_location
from types import CodeType, ModuleType

_PACKAGES = f"{__name__.rpartition('.')[0]}."
# The header of bytecode: the release of Python, no flags, and the lower 32 bits of the time and size of the source.
_RELEASE, _HEADER_BYTES, _HALF = MAGIC_NUMBER + bytes(4), 16, 0xFFFFFFFF


class _LazyModule(ModuleType):
    """A proxy of a module that loads the module when an attribute is accessed."""

    def __getattribute__(self, name: str) -> object:
        return getattr(import_module(super().__getattribute__("__name__")), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(import_module(self.__name__), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(import_module(self.__name__), name)


def load_on_use(package: str) -> None:
    """Make `from package import module` load the module on first use; a missing module fails then."""

    def module_of(name: str) -> ModuleType:
        if name.startswith("__"):
            msg = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(msg)
        return _LazyModule(f"{package}.{name}")

    # Set at run time: with a `__getattr__` in the package, a type checker would accept any name.
    sys.modules[package].__dict__["__getattr__"] = module_of


class _Loader(SourceFileLoader):
    """Python's loader of a source file, which takes bytecode in fewer steps if it is valid."""

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code if the header of the bytecode has the state of the source; otherwise as Python does."""
        folder, _, file = self.path.rpartition("/")
        with suppress(OSError):
            status = os.stat(self.path)  # noqa: PTH116 (pathlib is not loaded yet)
            state = (status.st_size & _HALF) << 32 | int(status.st_mtime) & _HALF
            with open(f"{folder}/__pycache__/{file[:-3]}{_OwnModules.ending}", "rb", 0) as stream:  # noqa: PTH123
                data = stream.read()
            if data.startswith(_RELEASE + state.to_bytes(8, "little")):
                code = marshal.loads(memoryview(data)[_HEADER_BYTES:])  # noqa: S302 (as Python does)
                if isinstance(code, CodeType) and code.co_filename == self.path:
                    return code
        return super().get_code(fullname)


class _OwnModules:
    """A finder of the modules of these packages."""

    ending = cache_from_source("x.py").rpartition("x")[2]

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a module or package in the directory of its package, None for modules of others."""
        if path is None or not name.startswith(_PACKAGES):
            return None
        place = f"{path[0]}/{name.rpartition('.')[2]}"
        for file, inner in ((f"{place}.py", None), (f"{place}/__init__.py", [place])):
            if os.path.isfile(file):  # noqa: PTH113 (as above)
                loader = _Loader(name, file)
                return spec_from_file_location(
                    name, file, loader=loader, submodule_search_locations=inner
                )
        return None


if sys.pycache_prefix is None:
    sys.meta_path.insert(0, _OwnModules)
load_on_use(__name__)
