"""Kernels for SPIR-V: the LLVM IR of NVIDIA GPUs in the terms of OpenCL."""
