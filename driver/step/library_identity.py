"""The device libraries of a step, named by content: a cache compares arguments and one input."""

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
    """Return what differs if a library for the target does; nothing where there is none."""
    contents = [
        content_identity(one.path, own_memo()) for one in libraries if one.is_compatible(target)
    ]
    return hashlib.sha256("\n".join(contents).encode()).hexdigest()[:_DIGITS] if contents else ""


def check_libraries(given: str, libraries: Sequence[DeviceLibrary], target: Target) -> None:
    """Raise CompatibilityError if the libraries are not those that were given to the step."""
    found = library_identity(libraries, target)
    if given and found != given:
        msg = f"the device libraries here are not those of the build: {found}, not {given}"
        raise CompatibilityError(msg, hint="run the build again, where the step sees its libraries")
