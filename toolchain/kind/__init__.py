"""Names, triples and architectures of each device kind, in one module each."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
