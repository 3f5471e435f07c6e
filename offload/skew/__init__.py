"""Compatibility checks: of files with the tools that read them, and of tools with the releases that they report."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
