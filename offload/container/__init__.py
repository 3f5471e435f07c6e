"""Containers of device images: offload binaries, bundles, fat binaries, archives."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
