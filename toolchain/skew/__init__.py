"""What each release of LLVM knows, and what it would refuse or misread."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
