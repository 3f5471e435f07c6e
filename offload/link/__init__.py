"""What a link of device code needs, and what it would lose."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
