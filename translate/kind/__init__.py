"""How MLIR becomes LLVM IR for each device kind, in one module each."""
