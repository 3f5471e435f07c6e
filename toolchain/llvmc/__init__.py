"""LLVM's C API of an installed release: typed handles for modules, functions, builders and passes."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
