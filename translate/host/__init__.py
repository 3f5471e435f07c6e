"""The host module of a program: launches, streams, memory, and the C interface."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
