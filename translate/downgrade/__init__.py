"""LLVM IR text in the form of an older release of LLVM."""
