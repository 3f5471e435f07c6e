"""The subcommands `bundle` and `link`: lower on one host, compile and link on another."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
