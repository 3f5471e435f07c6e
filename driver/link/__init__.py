"""From objects to programs: what clang-linker-wrapper is given, and what came of it."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
