"""What is asked for: the command line, configuration, environment, and how they are told."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
