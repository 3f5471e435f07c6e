"""What the tools of an unknown build of LLVM write and read, found out by small probes, one family in a module."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
