"""The GPUs of this host: NVIDIA GPUs from the driver's library, AMD GPUs from sysfs."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

_LIBRARY = "libcuda.so.1"
# CUdevice_attribute of cuda.h.
_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76
# The compute interface of the amdgpu driver (linux/kfd_sysfs.h): a node for each processor.
_KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
_KFD_DEVICE = Path("/dev/kfd")
_GFX_VERSION = re.compile(r"^gfx_target_version (\d{5,6})$", re.MULTILINE)


class AmdGpus(Struct, frozen=True):
    """The AMD GPUs of a host, in the order of the HIP runtime, and whether programs can open them."""

    archs: tuple[str, ...]
    is_open: bool


def probe_gpus() -> tuple[str, ...]:
    """Return the architecture (`sm_90`) of each GPU visible to CUDA programs, in CUDA's order.

    The result is empty if there is no GPU or no working driver. Does not raise.
    """
    try:
        driver = ctypes.CDLL(_LIBRARY)
        return tuple(_archs(driver))
    except (OSError, AttributeError):
        return ()


def probe_cuda_driver() -> tuple[int, int] | None:
    """Return the newest CUDA release that the driver of this host supports, None without a driver."""
    return cuda_release(_LIBRARY, "cuDriverGetVersion")


def cuda_release(library: str, function: str) -> tuple[int, int] | None:
    """Return the release that a version query of a CUDA library returns, None if the call fails."""
    version = ctypes.c_int(0)
    try:
        status = getattr(ctypes.CDLL(library), function)(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    # For example 13000 or 12040; a driver that does not work returns 0.
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


def probe_amd_gpus(nodes: Path | None = None, device: Path | None = None) -> AmdGpus:
    """Return the AMD GPUs that the kernel lists, with LLVM's names (`gfx90a`). Does not raise.

    In a container the kernel lists all GPUs of the host; access to `/dev/kfd` shows whether the
    container can use them.
    """
    archs = tuple(_amd_archs(nodes or _KFD_NODES))
    return AmdGpus(archs, os.access(device or _KFD_DEVICE, os.R_OK | os.W_OK))


def _amd_archs(nodes: Path) -> Iterator[str]:
    try:
        folders = sorted((path for path in nodes.iterdir() if path.name.isdecimal()), key=_number)
    except OSError:
        return
    for folder in folders:
        try:
            text = (folder / "properties").read_text(encoding="ascii", errors="replace")
        except OSError:
            # Not readable for this user.
            continue
        match = _GFX_VERSION.search(text)
        # The version of a CPU node is 0.
        if match is not None:
            major, rest = divmod(int(match[1]), 10_000)
            minor, stepping = divmod(rest, 100)
            yield f"gfx{major}{minor:x}{stepping:x}"


def _number(path: Path) -> int:
    return int(path.name)
