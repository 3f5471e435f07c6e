"""The compiler driver: decisions, order of steps and output."""

from mlir_offload.toolchain import load_on_use

__version__ = "0.1.0"

load_on_use(__name__)
