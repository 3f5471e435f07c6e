"""A device kind that the compiler does not know by itself."""
