"""A parser and printer of MLIR in generic form, its operations as objects, and a rewriter."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
