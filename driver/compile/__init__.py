"""From sources to objects: the steps, their order, and the device images of each kind."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
