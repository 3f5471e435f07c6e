"""The format and host runtime of each device kind; one module per kind."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
