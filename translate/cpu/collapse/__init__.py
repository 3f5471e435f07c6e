"""CPU kernels collapsed over strips of threads, through LLVM's C API.

After COX (Han et al.) and PoCL: a kernel is cut at barriers and subgroup operations; between them, a
strip of threads runs in loops over its lanes, which LLVM vectorizes.
"""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
