"""The error of a compiled function, for Python."""

from __future__ import annotations

from mlir_offload.toolchain.errors import MlirOffloadError


class MlirOffloadRuntimeError(MlirOffloadError, RuntimeError):
    """A compiled function failed while it ran: a launch, an allocation, an assertion of a kernel."""

    exit_status = 70
