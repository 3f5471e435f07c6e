"""Derive all tables that the releases of LLVM determine, and compare the others with what these releases do.

usage: python tests/foreign/derive.py --releases=14,15,...,23 --root=23=DIR [--write]

It writes toolchain/data/reader_limits.yaml and intrinsics.yaml, and compares the tables of GPUs and of text.
Exit status 1 if a table that it compares differs. docs/howto/new-llvm.md tells what is left to do.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from foreign.reader import add_reader_options  # noqa: E402

# Each program, and whether it writes a table.
_PROGRAMS = {"limits": True, "intrinsics": True, "processors": False, "constructs": False}


def main() -> int:
    """Run the programs one after the other; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_reader_options(parser)
    parser.add_argument("--write", action="store_true", help="replace the tables of the package")
    options = parser.parse_args()
    readers = [f"--releases={options.releases}", *(f"--root={root}" for root in options.root)]
    status = 0
    for name, is_written in _PROGRAMS.items():
        begin = time.monotonic()
        write = ["--write"] if is_written and options.write else []
        program = str(Path(__file__).with_name(f"{name}.py"))
        output = subprocess.DEVNULL if is_written else None
        done = subprocess.run(
            [sys.executable, program, *readers, *write], stdout=output, check=False
        )
        print(f"{name}: exit status {done.returncode}, {time.monotonic() - begin:.0f} s")  # noqa: T201
        status = status or done.returncode
    return status


if __name__ == "__main__":
    raise SystemExit(main())
