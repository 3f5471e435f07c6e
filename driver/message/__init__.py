"""Diagnostics and their formats: text, JSON, SARIF, GitHub annotations."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
