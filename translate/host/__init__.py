"""The host part of a program: launches, streams, memory, and what C may call."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
