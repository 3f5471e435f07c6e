"""Run the command line: the command `mlir-offload`, and `python -m mlir_offload`."""

import gc


def main() -> None:
    """Run the command line and exit with the status of its class of result."""
    # While modules are loaded nothing becomes garbage.
    gc.disable()
    from mlir_offload.driver import cli

    cli.main()


if __name__ == "__main__":
    main()
