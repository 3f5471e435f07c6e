"""The subcommand `learn`: print the rows of a build of LLVM next to the nearest release, and as a patch."""

from mlir_offload.toolchain.lazy import load_on_use

load_on_use(__name__)
