"""mlir-offload for Python programs: `compile` and `load` give functions of MLIR to call.

What is here is loaded with whatever part of the package is used, so it imports nothing large.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mlir_offload.driver import __version__
from mlir_offload.toolchain import errors

# As in typing, which would be loaded for it alone.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from mlir_offload.offload.interface.library import Library
    from mlir_offload.toolchain.errors import MlirOffloadError, MlirOffloadRuntimeError
else:

    def __getattr__(name: str) -> type[Exception]:
        """Return an error class. The command is interruptible only when this module is loaded."""
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
    Its functions with `llvm.emit_c_interface` can be called. `arch` is what `--offload-arch=` takes:
    "native" is the GPU of this machine, else the CPU. `options` are further options of the command
    line, for example `["-O3", "--pipeline=linalg"]`. The library is kept in the user's cache by its content
    and the toolchain; the same program gives the same library within a process. `cache=False` compiles again.

    Raises SourceError for an error in the program, other MlirOffloadErrors as the command line does.
    """
    from mlir_offload.driver.python_compile import compile_program

    return compile_program(program, arch, options, cache=cache)


def load(path: str | os.PathLike[str]) -> Library:
    """Load a shared library made by mlir-offload and return its functions.

    Raises MlirOffloadError where it is not one, or has no functions for callers.
    """
    from mlir_offload.offload.interface.library import load as load_library

    return load_library(path)


def stub(library: Library, name: str = "Functions") -> str:
    """Return the text of a `.pyi` file with a class of this name, for type checkers and editors."""
    from mlir_offload.offload.interface.stub import render_stub

    return render_stub(library, name)
