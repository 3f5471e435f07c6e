"""MLIR to LLVM: split a GPU program, lower host and device code, generate device images."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
