"""The offload data in host code: entries, registration, embedded images."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
