"""Run the command line, for the command `mlir-offload` and for `python -m mlir_offload.driver`."""

import gc
import signal


def main() -> None:
    """Run the command line and exit with the status of the error class, 0 on success."""
    # Loading modules creates no garbage.
    gc.disable()
    # There is nothing to clean up yet, so SIGINT ends the process by its default action.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mlir_offload.driver import cli

    cli.main()


if __name__ == "__main__":
    main()
