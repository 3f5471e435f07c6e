"""Run the command line: the command `mlir-offload`, and `python -m mlir_offload.driver`."""

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line and exit with the status of its class of result."""
    # While modules are loaded nothing becomes garbage.
    gc.disable()
    _use_utf8()
    # Nothing has to be removed yet: an interrupt ends the process as it ends any other program.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mlir_offload.driver import cli

    cli.main()


def _use_utf8() -> None:
    """Begin again where the locale decodes names of files otherwise: the files that hold names are UTF-8."""
    if sys.executable and sys.getfilesystemencoding() != "utf-8":
        words = (sys.executable, "-X", "utf8", *sys.orig_argv[1:])
        os.execv(sys.executable, words)  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main()
