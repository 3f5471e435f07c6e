"""Run the command line: the command `mlir-offload`, and `python -m mlir_offload`."""

from mlir_offload.driver.__main__ import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
