"""The interface by which C, C++ and Python call the functions of a program."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
