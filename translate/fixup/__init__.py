"""Device operations that stock passes lower wrongly or not at all, rewritten or refused."""

from mlir_offload.toolchain.lazy import load_on_use

load_on_use(__name__)
