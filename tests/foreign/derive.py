"""Derive all tables that depend only on LLVM releases, and compare the other tables with these releases.

usage: python tests/foreign/derive.py --releases=14,15,...,23 --root=23=DIR [--write | --compare]

It writes reader_limits.yaml, intrinsics.yaml and intrinsic_signatures.yaml of toolchain/data, and compares
the other tables that the checks between releases use. --compare shows the differences between the first three
and the derived ones. No program reads the table that it writes, so equal tables prove that all rows come from
the readers. Exit status 1 if a compared table differs. docs/howto/new-llvm.md lists the remaining steps.
"""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from foreign.reader import add_reader_options  # noqa: E402

TABLES = ROOT / "toolchain" / "data"
# Each program, and the table that it writes; empty for a program that compares.
PROGRAMS = {
    "limits": "reader_limits.yaml",
    "intrinsics": "intrinsics.yaml",
    "signatures": "intrinsic_signatures.yaml",
    "processors": "",
    "launch_attributes": "",
    "debug_operations": "",
    "constructs": "",
    "single_rows": "",
    "openmp_runtime": "",
}


def main() -> int:
    """Run the programs one after the other; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_reader_options(parser)
    parser.add_argument("--write", action="store_true", help="replace the tables of the package")
    parser.add_argument("--compare", action="store_true", help="show how the tables differ")
    options = parser.parse_args()
    readers = [f"--releases={options.releases}", *(f"--root={root}" for root in options.root)]
    status = 0
    for name, table in PROGRAMS.items():
        begin = time.monotonic()
        command = [sys.executable, str(Path(__file__).with_name(f"{name}.py")), *readers]
        command += ["--write"] if table and options.write else []
        done = subprocess.run(
            command, stdout=subprocess.PIPE if table else None, text=True, check=False
        )
        differs = bool(table) and options.compare and _shows_difference(TABLES / table, done.stdout)
        print(f"{name}: exit status {done.returncode}, {time.monotonic() - begin:.0f} s")  # noqa: T201
        status = status or done.returncode or int(differs)
    return status


def _shows_difference(table: Path, derived: str) -> bool:
    """Print the differences between a table and the derived one; return whether there are any."""
    kept = table.read_text(encoding="utf-8")
    lines = difflib.unified_diff(kept.splitlines(), derived.splitlines(), "kept", "derived", n=0)
    print("\n".join(lines) or f"{table.name}: as derived")  # noqa: T201
    return kept != derived


if __name__ == "__main__":
    raise SystemExit(main())
