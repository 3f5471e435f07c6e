"""What is kept of a call: dependencies, manifests, what changed, archives to run it again."""

from mlir_offload.toolchain.lazy import load_on_use

load_on_use(__name__)
