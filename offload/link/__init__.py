"""Checks of device links: their inputs, and the kernels that they would drop."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
