"""Formats and runtime of the CPU, which libomptarget or the fallback for it launches kernels on."""

from __future__ import annotations

from mlir_offload.offload.kind_format import KindFormat, RuntimePlan, library_arguments
from mlir_offload.toolchain.target import Kind


class CpuFormat(KindFormat):
    """The CPU. Its entries come first.

    libomptarget 21 and 22 number the entries of kind openmp twice, with and without the other kinds; the
    numbers agree where these come first (offload/libomptarget/device.cpp).
    """

    name = Kind.OPENMP
    is_registered_first = True

    def runtime_definitions(self, plan: RuntimePlan, /) -> tuple[str, ...]:
        """Return whether there is the fallback."""
        return ("-DMLIR_OFFLOAD_OMPTARGET_FALLBACK",) if plan.fallback else ()

    def link_arguments(self, plan: RuntimePlan, /) -> tuple[str, ...]:
        """Return libomptarget, unless the runtime was compiled with the fallback."""
        library = plan.library(self.name)
        return library_arguments(library) if library is not None else ()


KIND = CpuFormat()
