"""The steps of a compilation: values with typed fields that run here, and whose command lines derive from them."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
