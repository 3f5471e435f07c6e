"""A reader of LLVM bitcode that does not use LLVM."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
