"""The OpenCL device of the tests: the CPU, by Intel's wheels in the environment that runs them."""

from __future__ import annotations

import importlib.metadata
from functools import cache
from pathlib import Path

import pytest

_DRIVER = "libintelocl.so"


@cache
def _library_directory() -> Path | None:
    try:
        files = importlib.metadata.files("intel-opencl-rt") or ()
        importlib.metadata.version("intel-cmplr-lib-rt")  # what the driver is linked with
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())).resolve() for file in files if file.name == _DRIVER)
    return next((path.parent for path in found if path.exists()), None)


def opencl_environment() -> dict[str, str]:
    """Return the variables by which a program finds the CPU, and no other OpenCL device.

    Skips the test where the wheels are not installed.
    """
    directory = _library_directory()
    if directory is None:
        pytest.skip("no OpenCL device: intel-opencl-rt is not installed")
    return {
        "LD_LIBRARY_PATH": str(directory),
        "OCL_ICD_FILENAMES": str(directory / _DRIVER),
        # A folder without drivers, instead of the system's.
        "OCL_ICD_VENDORS": str(directory),
    }
