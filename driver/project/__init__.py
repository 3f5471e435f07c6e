"""The subcommand `build`: projects, from their manifest to the steps that run."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
