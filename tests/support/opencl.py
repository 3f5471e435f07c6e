"""The OpenCL device of the tests: the CPU, through Intel's wheels in the environment of the tests."""

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
        importlib.metadata.version("intel-cmplr-lib-rt")  # linked by the OpenCL driver
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())).resolve() for file in files if file.name == _DRIVER)
    return next((path.parent for path in found if path.exists()), None)


def opencl_environment() -> dict[str, str]:
    """Return the variables with which a program finds only the CPU as OpenCL device.

    Skips the test if the wheels are not installed.
    """
    directory = _library_directory()
    if directory is None:
        pytest.skip("no OpenCL device: intel-opencl-rt is not installed")
    return {
        "LD_LIBRARY_PATH": str(directory),
        "OCL_ICD_FILENAMES": str(directory / _DRIVER),
        # A directory without drivers replaces that of the system.
        "OCL_ICD_VENDORS": str(directory),
    }
