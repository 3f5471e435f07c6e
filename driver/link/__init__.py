"""From objects to programs: run clang-linker-wrapper and verify its output."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
