"""The requested build: command line, configuration files, environment, and their documentation."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
