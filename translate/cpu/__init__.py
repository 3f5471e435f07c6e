"""Kernels for the CPU: work-items of a block as loops in one function."""
