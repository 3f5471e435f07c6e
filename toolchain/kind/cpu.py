"""The CPU of the host that runs the program."""

from __future__ import annotations

from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.target import HOST, DeviceKind, Kind, host_triple


class CpuKind(DeviceKind):
    """The CPU. All of its images run on one device, whatever their architecture."""

    name = Kind.OPENMP
    word = "host"
    title = "the CPU"
    arch_form = pattern(HOST)
    arch_hint = f"{HOST} (the CPU)"
    example = HOST
    is_cpu = True

    @property
    def triple(self) -> str:
        """Return the target triple of this host."""
        return host_triple()

    def spelling(self, _arch: str, /) -> str:
        """Return `host`: containers have another architecture name, or none."""
        return self.example

    def container_arch(self, arch: str, /) -> str:
        """Return "" for `host`: the wrapper links images of different architectures separately."""
        return "" if arch == self.example else arch


KIND = CpuKind()
