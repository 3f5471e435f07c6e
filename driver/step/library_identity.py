"""The identity of the device libraries of a step, because a cache compares only arguments and one input."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from mlir_offload.driver.option.compile_options import DeviceLibrary
from mlir_offload.driver.system.file_identity import content_identity
from mlir_offload.driver.tools.llvm_files import own_memo
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.target import Target

_DIGITS = 32


def library_identity(libraries: Sequence[DeviceLibrary], target: Target) -> str:
    """Return a hash of the libraries for the target; empty if there are none."""
    contents = [
        content_identity(one.path, own_memo()) for one in libraries if one.is_compatible(target)
    ]
    return hashlib.sha256("\n".join(contents).encode()).hexdigest()[:_DIGITS] if contents else ""


def check_libraries(given: str, libraries: Sequence[DeviceLibrary], target: Target) -> None:
    """Raise CompatibilityError if the libraries differ from those of the step's identity."""
    found = library_identity(libraries, target)
    if given and found != given:
        msg = f"the device libraries here are not those of the build: {found}, not {given}"
        raise CompatibilityError(msg, hint="run the build again, where the step sees its libraries")
