"""The command that starts this driver again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

OWN_NAME = "mlir-offload"
"""The name of the installed program."""


def own_program() -> tuple[str, ...]:
    """Return the command that starts this driver again."""
    started = Path(sys.argv[0])
    if started.name == OWN_NAME and started.is_file() and os.access(started, os.X_OK):
        return (str(started.absolute()),)
    return (sys.executable, "-m", "mlir_offload.driver")
