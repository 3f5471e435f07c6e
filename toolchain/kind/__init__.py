"""What LLVM and the command line say of each device kind, in one module each."""
