"""Collapse the threads of a block into loops of one block function, through LLVM's C API.

The transformation follows COX (Han et al.) and PoCL. A kernel is split at barriers and subgroup operations. The
code between them is executed for a strip of threads by loops over its lanes, which LLVM vectorizes, or for a row
of threads by a plain loop over its threads.
"""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
