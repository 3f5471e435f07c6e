"""What the formats of LLVM and the host runtime say of each device kind, in one module each."""
