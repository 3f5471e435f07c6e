"""The NVIDIA GPUs of this machine, asked of the driver's own library."""

from __future__ import annotations

import ctypes

_LIBRARY = "libcuda.so.1"
# CUdevice_attribute of cuda.h.
_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76


def probe_gpus() -> tuple[str, ...]:
    """Return the architecture (`sm_90`) of each GPU that CUDA programs would see, in CUDA's order.

    Empty where there is no GPU, no driver, or a driver that does not work; never raises.
    """
    try:
        driver = ctypes.CDLL(_LIBRARY)
        return tuple(_archs(driver))
    except (OSError, AttributeError):
        return ()


def probe_cuda_driver() -> tuple[int, int] | None:
    """Return the newest CUDA release that the driver of this machine serves; None without one."""
    return cuda_release(_LIBRARY, "cuDriverGetVersion")


def cuda_release(library: str, function: str) -> tuple[int, int] | None:
    """Return the release that a function of a library of CUDA tells; None where that cannot be asked."""
    version = ctypes.c_int(0)
    try:
        status = getattr(ctypes.CDLL(library), function)(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    # Such as 13000 and 12040; the driver says 0 where it does not work.
    return divmod(version.value // 10, 100) if status == 0 and version.value else None


def _archs(driver: ctypes.CDLL) -> list[str]:
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    archs = []
    for ordinal in range(count.value):
        major = _attribute(driver, ordinal, _COMPUTE_CAPABILITY_MAJOR)
        minor = _attribute(driver, ordinal, _COMPUTE_CAPABILITY_MINOR)
        if major is not None and minor is not None:
            archs.append(f"sm_{major}{minor}")
    return archs


def _attribute(driver: ctypes.CDLL, ordinal: int, attribute: int) -> int | None:
    device = ctypes.c_int(0)
    value = ctypes.c_int(0)
    if driver.cuDeviceGet(ctypes.byref(device), ordinal) != 0:
        return None
    if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) != 0:
        return None
    return value.value
