"""Run the command line, for the command `mlir-offload` and for `python -m mlir_offload.driver`."""

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line and exit with the status of the error class, 0 on success."""
    # Loading modules creates no garbage.
    gc.disable()
    _use_utf8()
    # There is nothing to clean up yet, so SIGINT ends the process by its default action.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mlir_offload.driver import cli

    cli.main()


def _use_utf8() -> None:
    """Restart in UTF-8 mode if the locale has another encoding, because files that contain names are UTF-8."""
    if sys.executable and sys.getfilesystemencoding() != "utf-8":
        words = (sys.executable, "-X", "utf8", *sys.orig_argv[1:])
        os.execv(sys.executable, words)  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main()
