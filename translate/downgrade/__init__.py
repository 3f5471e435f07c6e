"""Downgrade textual LLVM IR for an older release of LLVM."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
