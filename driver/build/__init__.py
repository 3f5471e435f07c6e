"""A whole build: from the command line to what comes out."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
