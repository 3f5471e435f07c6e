"""What a file holds of offloading, whatever it is, and what is wrong with it."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
