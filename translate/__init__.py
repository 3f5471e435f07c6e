"""MLIR to LLVM: split a GPU program, lower host and device, make device images."""
