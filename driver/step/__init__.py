"""The steps of a compilation: values with typed fields, whose command lines are derived from the fields."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
