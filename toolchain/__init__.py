"""Programs, versions and targets: what is installed and what it can do."""

from mlir_offload.toolchain.lazy import load_on_use

load_on_use(__name__)
