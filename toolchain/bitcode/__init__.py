"""LLVM bitcode, read without LLVM."""
