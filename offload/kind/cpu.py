"""The format and runtime of the CPU; kernels are launched by libomptarget or its built-in fallback."""

from __future__ import annotations

from mlir_offload.offload.kind_format import KindFormat, RuntimePlan, library_arguments
from mlir_offload.toolchain.target import Kind


class CpuFormat(KindFormat):
    """The CPU. Its entries come first.

    libomptarget 21 and 22 number the entries of kind openmp twice, with and without those of other kinds; the
    numbers agree if these entries come first (offload/libomptarget/device.cpp).
    """

    name = Kind.OPENMP
    is_registered_first = True

    def runtime_definitions(self, plan: RuntimePlan, /) -> tuple[str, ...]:
        """Return the macro that enables the libomptarget fallback, if it is used."""
        return ("-DMLIR_OFFLOAD_OMPTARGET_FALLBACK",) if plan.fallback else ()

    def link_arguments(self, plan: RuntimePlan, /) -> tuple[str, ...]:
        """Return libomptarget, unless the runtime is compiled with the fallback."""
        library = plan.library(self.name)
        return library_arguments(library) if library is not None else ()


KIND = CpuFormat()
