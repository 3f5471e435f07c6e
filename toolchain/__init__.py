"""Programs, versions and targets: what is installed and what it can do.

What every package does is here: its modules are loaded when a name in them is first used. In a package that
calls `load_on_use`, the form of an import says when: `from package.module import name` loads the module at
once, `from package import module` with the first `module.name`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


class _LazyModule(ModuleType):
    """Stands for a module that is perhaps not loaded; its names are those of the module."""

    def __getattribute__(self, name: str) -> object:
        return getattr(import_module(super().__getattribute__("__name__")), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(import_module(self.__name__), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(import_module(self.__name__), name)


def load_on_use(package: str) -> None:
    """Let `from package import module` wait with loading the module; one that is missing fails then."""

    def module_of(name: str) -> ModuleType:
        if name.startswith("__"):
            msg = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(msg)
        return _LazyModule(f"{package}.{name}")

    # Set here, not defined in the package: a type checker knows the modules of a package by itself.
    sys.modules[package].__dict__["__getattr__"] = module_of


load_on_use(__name__)
