"""The formats and options of an unknown build of LLVM, found by small probes; one family per module."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
