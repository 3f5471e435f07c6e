"""The subcommands `bundle` and `link`: lowered here, linked on another machine."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
