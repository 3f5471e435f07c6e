"""LLVM's C API of an installed release: typed handles for modules, functions, builders and passes."""
