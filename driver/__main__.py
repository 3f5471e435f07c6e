"""Run the command line: the command `mlir-offload`, and `python -m mlir_offload.driver`."""

import gc
import signal


def main() -> None:
    """Run the command line and exit with the status of its class of result."""
    # While modules are loaded nothing becomes garbage.
    gc.disable()
    # Nothing has to be removed yet: an interrupt ends the process as it ends any other program.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mlir_offload.driver import cli

    cli.main()


if __name__ == "__main__":
    main()
