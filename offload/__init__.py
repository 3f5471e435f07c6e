"""Offload formats: device images, offload entries, host modules and the runtime."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
