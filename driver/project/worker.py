"""A process that runs steps of a project, each in a fork of itself: what they need is loaded once.

usage: python -m mlir_offload.driver.project.worker PROGRAM KIND...
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import IO, NoReturn

from mlir_offload.driver.cli import main
from mlir_offload.driver.compile.preload import modules_for
from mlir_offload.driver.toolchain_id import own_identity
from mlir_offload.toolchain.target import Kind

# Besides what a compilation always needs: what most programs make it load.
_OFTEN = ("mlir_offload.driver.project.step", "mlir_offload.translate.host.interface", "yaml")


def serve(program: str, kinds: Sequence[str]) -> None:
    """Run the steps that standard input names, a list of arguments per line; answer with their ends."""
    for name in (*_OFTEN, *modules_for(frozenset(map(Kind, kinds)), links=True)):
        importlib.import_module(name)
    own_identity()
    # As the driver was started: steps may start it again.
    sys.argv[0] = program
    # What is loaded stays shared between this process and its forks.
    gc.freeze()
    for line in sys.stdin:
        with tempfile.TemporaryFile() as said:
            status = _run(json.loads(line), said)
            said.seek(0)
            text = said.read().decode("utf-8", "surrogateescape")
        sys.stdout.write(json.dumps([status, text]) + "\n")
        sys.stdout.flush()


def _run(arguments: Sequence[str], said: IO[bytes]) -> int:
    """Return how the step ended: its exit status, or a signal as a negative number."""
    child = os.fork()
    if child == 0:
        _be_driver(arguments, said)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _be_driver(arguments: Sequence[str], said: IO[bytes]) -> NoReturn:
    status = 1
    try:
        empty = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((empty, 0), (said.fileno(), 1), (said.fileno(), 2)):
            os.dup2(source, target)
        main(arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 (nothing may return into the loop of the parent)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
