"""The subcommand `doctor`: what is installed, tried for real."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
