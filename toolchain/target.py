"""Offload kinds, architectures and targets, as LLVM spells them."""

from __future__ import annotations

import os
import re
from enum import StrEnum

from msgspec import Struct

from mlir_offload.toolchain.amdgpu import is_target_id, normalize_target_id
from mlir_offload.toolchain.errors import UsageError


class Kind(StrEnum):
    """The offload kind of a device image (`llvm/Object/OffloadBinary.h`)."""

    CUDA = "cuda"
    HIP = "hip"
    OPENMP = "openmp"
    SYCL = "sycl"


DEVICE_WORDS = {Kind.CUDA: "cuda", Kind.HIP: "hip", Kind.SYCL: "sycl", Kind.OPENMP: "host"}
"""What MLIR_OFFLOAD_DEVICE and mlir_offload_set_device call the devices of a kind (runtime/device_name.c)."""


class Target(Struct, frozen=True, order=True):
    """What a device image is made for: offload kind, target triple, architecture."""

    kind: Kind
    triple: str
    arch: str

    def __str__(self) -> str:
        """Return the spelling of `--offload-arch=`."""
        return HOST if self.kind is Kind.OPENMP else self.arch


NVPTX_TRIPLE = "nvptx64-nvidia-cuda"
AMDGPU_TRIPLE = "amdgcn-amd-amdhsa"
SPIRV_TRIPLE = "spirv64-unknown-unknown"
HOST = "host"
"""The word of `--offload-arch=` for the CPU."""
SPIRV = "spirv64"
"""The word of `--offload-arch=` for what takes SPIR-V, as Intel GPUs do."""
_SM = re.compile(r"sm_(\d{2,3})([af]?)")


def host_triple() -> str:
    """Return the target triple of this machine as Debian's clang spells it."""
    return f"{os.uname().machine}-pc-linux-gnu"


def parse_offload_arch(name: str) -> Target:
    """Return the target that one word of `--offload-arch=` names (`native` is resolved earlier).

    Raises UsageError for a name that is no architecture of a known kind.
    """
    if name == HOST:
        return Target(Kind.OPENMP, host_triple(), HOST)
    if _SM.fullmatch(name):
        return Target(Kind.CUDA, NVPTX_TRIPLE, name)
    if is_target_id(name):
        return Target(Kind.HIP, AMDGPU_TRIPLE, normalize_target_id(name))
    if name == SPIRV:
        return Target(Kind.SYCL, SPIRV_TRIPLE, SPIRV)
    msg = f"unknown offload architecture '{name}'"
    hint = (
        "use sm_NN for NVIDIA (for example sm_90), gfxNNN for AMD (for example gfx90a or "
        "gfx90a:xnack-), spirv64 for Intel, 'host' for the CPU, or 'native'"
    )
    raise UsageError(msg, hint=hint)


def sm_number(arch: str) -> int:
    """Return NN of `sm_NN`; feature letters are dropped. Raises ValueError for another name."""
    match = _SM.fullmatch(arch)
    if match is None:
        msg = f"not an NVIDIA architecture: {arch!r}"
        raise ValueError(msg)
    return int(match.group(1))
