"""AMD GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from mlir_offload.toolchain import amdgpu
from mlir_offload.toolchain.target import AMDGPU_TRIPLE, TARGET_ID, DeviceKind, Kind


class _Hip(DeviceKind):
    name = Kind.HIP
    word = "hip"
    title = "GPUs of AMD"
    triple = AMDGPU_TRIPLE
    arch_form = TARGET_ID
    arch_hint = "gfxNNN (AMD)"
    example = "gfx90a"
    uses_rocm = True

    def check_archs(self, archs: Sequence[str], /) -> None:
        """Raise UsageError if a GPU could match two of the target IDs."""
        amdgpu.check_target_ids(archs)

    def normalize(self, arch: str, /) -> str:
        """Return the target ID with sorted features."""
        return amdgpu.normalize_target_id(arch)

    def runs(self, code_arch: str, arch: str, /) -> bool:
        """Return whether the code is for the processor of the target ID."""
        return code_arch == amdgpu.processor_of(arch)


KIND = _Hip()
