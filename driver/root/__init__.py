"""mlir-offload for Python programs: `compile` and `load` return a program's functions as Python callables.

This module is imported with any part of the package, so it imports nothing large.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mlir_offload.driver import __version__
from mlir_offload.toolchain import errors

# The same constant as in `typing`, which would be imported only for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from mlir_offload.offload.interface.library import Library
    from mlir_offload.toolchain.errors import MlirOffloadError, MlirOffloadRuntimeError
else:

    def __getattr__(name: str) -> type[Exception]:
        """Return an error class. The import is late, because the command is interruptible only after this module."""
        if name not in __all__:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(errors, name)


__all__ = ["MlirOffloadError", "MlirOffloadRuntimeError", "__version__", "compile", "load", "stub"]


def compile(  # noqa: A001 (as re.compile: the word of the field, used through the module)
    program: str | os.PathLike[str] | object,
    arch: str | Sequence[str] = "native",
    options: Sequence[str] = (),
    *,
    cache: bool = True,
) -> Library:
    """Compile a program and return its functions.

    `program` is a path, the text of a module, or an object whose `str()` is one (MLIR's bindings, xDSL).
    Its functions with `llvm.emit_c_interface` can be called. `arch` is the value of `--offload-arch=`;
    "native" selects the GPU of this host, or the CPU if there is none. `options` are further command-line
    options, for example `["-O3", "--pipeline=linalg"]`. The library is stored in the user's cache, keyed by
    content and toolchain. Within a process, equal programs return the same library. `cache=False` recompiles.

    Raises SourceError for an error in the program, and other MlirOffloadErrors as the command line does.
    """
    from mlir_offload.driver.python_compile import compile_program

    return compile_program(program, arch, options, cache=cache)


def load(path: str | os.PathLike[str]) -> Library:
    """Load a shared library made by mlir-offload and return its functions.

    Raises MlirOffloadError if it is another file, or has no callable functions.
    """
    from mlir_offload.offload.interface.library import load as load_library

    return load_library(path)


def stub(library: Library, name: str = "Functions") -> str:
    """Return the text of a `.pyi` file with a class of this name, for type checkers and editors."""
    from mlir_offload.offload.interface.stub import render_stub

    return render_stub(library, name)
