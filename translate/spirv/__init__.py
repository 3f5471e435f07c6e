"""Kernels for SPIR-V: convert LLVM IR for NVIDIA GPUs to OpenCL functions and address spaces."""

from mlir_offload.toolchain import load_on_use

load_on_use(__name__)
