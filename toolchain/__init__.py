"""Installed tools: their versions, capabilities and targets.

This module also loads the modules of all packages on first use. If a package calls `load_on_use`,
`from package.module import name` loads the module immediately, and `from package import module` loads it
at the first access to `module.name`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

# The same constant as in `typing`, which would be imported only for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from functools import cached_property

    lazy = cached_property
else:

    class lazy:  # noqa: N801 (used as `cached_property` is)
        """A property that is computed at the first access and kept in the `__dict__` of the object.

        Unlike `functools.cached_property` of Python 3.11, it takes no lock, which costs more than most values.
        """

        def __init__(self, compute: Callable[..., object]) -> None:
            """Store the function."""
            self._compute = compute

        def __get__(self, instance: object, _: type[object]) -> object:
            """Return the value. Later accesses find it in the `__dict__`."""
            value = instance.__dict__[self._compute.__name__] = self._compute(instance)
            return value


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


load_on_use(__name__)
