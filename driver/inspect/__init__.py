"""The subcommand `inspect`: the offload data in files."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
