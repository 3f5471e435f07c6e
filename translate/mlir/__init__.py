"""MLIR text: the one reader of it, its operations as objects, and rewrites of them."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
