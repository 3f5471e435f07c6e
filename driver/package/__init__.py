"""The verb `package`: device images made elsewhere."""

from mlir_offload.toolchain.lazy import load_on_use

load_on_use(__name__)
