"""The lowering of MLIR to LLVM IR for each device kind, in one module each."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
