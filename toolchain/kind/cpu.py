"""The CPU of the machine that runs the program."""

from __future__ import annotations

from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.target import HOST, DeviceKind, Kind, host_triple


class CpuKind(DeviceKind):
    """The CPU: all of its images run on one device, whatever their architecture."""

    name = Kind.OPENMP
    word = "host"
    title = "the CPU"
    arch_form = pattern(HOST)
    arch_hint = f"{HOST} (the CPU)"
    example = HOST
    is_cpu = True

    @property
    def triple(self) -> str:
        """Return the target triple of this machine."""
        return host_triple()

    def spelling(self, _arch: str, /) -> str:
        """Return the word for the CPU: containers name other architectures, or none."""
        return self.example

    def container_arch(self, arch: str, /) -> str:
        """Return nothing for the CPU itself: the wrapper would link images of each architecture apart."""
        return "" if arch == self.example else arch


KIND = CpuKind()
