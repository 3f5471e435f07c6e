"""A complete build: from the command line to the outputs."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
