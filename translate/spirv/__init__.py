"""Kernels for SPIR-V: the LLVM IR of NVIDIA GPUs in the terms of OpenCL."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
