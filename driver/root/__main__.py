"""Run the command line: `python -m mlir_offload`."""

from mlir_offload.driver.cli import main

if __name__ == "__main__":
    main()
