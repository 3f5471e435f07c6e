"""Device code of every format: its kernels, their parameters, and its target."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
