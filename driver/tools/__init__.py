"""What a build uses: LLVM releases, toolkits, targets, and the identity of them all."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
