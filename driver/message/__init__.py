"""What is said to people and to machines: text, JSON, SARIF, GitHub annotations."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
