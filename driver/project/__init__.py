"""The subcommand `build`: projects, from the manifest to the execution of steps."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
