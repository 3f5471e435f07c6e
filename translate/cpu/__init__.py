"""The CPU target: the threads of a block as loops in one function, or as fibers."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
