"""mlir-offload for Python programs: `mlir_offload.load("k.so")` calls functions of MLIR.

What stands here is loaded with whatever part of the package is used, so it imports nothing large.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mlir_offload.driver import __version__
from mlir_offload.toolchain.errors import MlirOffloadError

if TYPE_CHECKING:
    from mlir_offload.offload.interface.library import Library

__all__ = ["MlirOffloadError", "__version__", "load"]


def load(path: str | os.PathLike[str]) -> Library:
    """Load a shared library made by mlir-offload and return its functions.

    Raises MlirOffloadError where it is not one, or has no functions for callers.
    """
    from mlir_offload.offload.interface.library import load as load_library

    return load_library(path)
