"""Version skew: what each release of LLVM rejects or misreads of IR that another release wrote."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
