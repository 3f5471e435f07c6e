"""The tools of a build: LLVM releases, toolkits, targets, and their identity."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
