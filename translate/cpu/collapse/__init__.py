"""CPU kernels in loops over strips or rows of threads, through LLVM's C API.

After COX (Han et al.) and PoCL: a kernel is cut at barriers and subgroup operations; between them, a
strip of threads runs in loops over its lanes, which LLVM vectorizes, or a row in a plain loop over its
threads.
"""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
