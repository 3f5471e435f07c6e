"""Legalize, or reject, device operations that upstream passes lower wrongly or not at all."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
