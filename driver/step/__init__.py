"""The steps of a compilation: values with typed fields that run here, and whose command lines derive from them."""
