"""Releases that do not fit: files against their readers, tools against what they say they are."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
