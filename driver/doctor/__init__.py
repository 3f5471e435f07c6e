"""The subcommand `doctor`: test the installed tools with a small program."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
