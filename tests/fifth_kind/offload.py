"""Formats of the kind: entries as the CPU has, a runtime of its own."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.offload.kind_format import KindFormat, RuntimePlan
from mlir_offload.offload.runtime import runtime_include_directory
from mlir_offload.toolchain.target import Kind

_RUNTIME = Path(__file__).with_name("fifth.c")


class _Fifth(KindFormat):
    name = Kind("fifth")
    is_registered_first = True
    is_bundled = False

    def runtime_definitions(self, _plan: RuntimePlan, /) -> tuple[str, ...]:
        """Return its file, and what that defines."""
        return (
            *("-I", str(runtime_include_directory()), "-include", str(_RUNTIME)),
            *("-DMLIR_OFFLOAD_OTHER_BACKEND=mo_fifth", '-DMLIR_OFFLOAD_OTHER_DEVICE="fifth"'),
        )


KIND = _Fifth()
