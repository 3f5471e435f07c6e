"""The offload data in a file of any format, and its problems."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
