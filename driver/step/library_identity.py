"""The device libraries of a step, named by content: a cache compares arguments and one input."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from mlir_offload.driver.option.device_flags import DeviceLibrary
from mlir_offload.driver.system.file_identity import content_identity
from mlir_offload.driver.tools.toolchain_id import own_memo
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.target import Target

LIBRARY_ID = "--library-id="
_DIGITS = 32


def library_arguments(libraries: Sequence[DeviceLibrary], target: Target) -> tuple[str, ...]:
    """Return the argument that differs if a library for the target does."""
    identity = _identity(libraries, target)
    return (f"{LIBRARY_ID}{identity}",) if identity else ()


def check_libraries(given: str, libraries: Sequence[DeviceLibrary], target: Target) -> None:
    """Raise CompatibilityError if the libraries are not those that were given to the step."""
    found = _identity(libraries, target)
    if given and found != given:
        msg = f"the device libraries here are not those of the build: {found}, not {given}"
        raise CompatibilityError(msg, hint="run the build again, where the step sees its libraries")


def _identity(libraries: Sequence[DeviceLibrary], target: Target) -> str:
    contents = [content_identity(one.path, own_memo()) for one in libraries if one.serves(target)]
    return hashlib.sha256("\n".join(contents).encode()).hexdigest()[:_DIGITS] if contents else ""
