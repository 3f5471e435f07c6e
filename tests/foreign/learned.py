"""Compare the tables with the rows that `mlir-offload learn` finds for each LLVM release.

Exit status 1 if they differ. Tables that a release was never tested for are listed. With --write, the tables
are changed: new rows are added, and the release is added to `checked` of those that match. A release in the
root directory of another Debian is tested there, with bubblewrap (apt install bubblewrap).

usage: python tests/foreign/learned.py [--releases=15,16,19,22] [--root=N=DIR] [--write]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from mlir_offload.driver.tools.calibration import as_values, table_values  # noqa: E402
from mlir_offload.offload.unmeasured import unmeasured_lists  # noqa: E402
from mlir_offload.toolchain.learned_row import MissingPassesRow, list_of  # noqa: E402
from mlir_offload.toolchain.tables import LearnedRelease, parse_learned  # noqa: E402

_DRIVER = (sys.executable, "-m", "mlir_offload.driver", "learn")
# Directories of this system that are visible in another root: the interpreter, this tree and CUDA.
_SHARED = (sys.base_prefix, sys.prefix, str(ROOT), "/usr/local")
# The working directory of the driver, to which crash reports are written.
_HERE = tempfile.gettempdir()
_SYSTEM = frozenset({"bin", "etc", "lib", "lib64", "sbin", "usr"})


def main() -> int:
    """Return the exit status."""
    options = _options()
    roots = dict(word.split("=", 1) for word in options.root)
    found = False
    for release in map(int, options.releases.split(",")):
        place = roots.get(str(release), "")
        lines = list(_mistakes(release, place))
        found = found or bool(lines)
        never = ", ".join(unmeasured_lists(release)) or "none"
        print(*lines, f"LLVM {release}: never asked for {never}", sep="\n")  # noqa: T201
        if options.write:
            patch = _learn(release, place, "--patch")
            subprocess.run(
                ["patch", "-p1", "--quiet"], cwd=ROOT, input=patch, text=True, check=True
            )
    return int(found)


def _mistakes(release: int, place: str) -> Iterator[str]:
    """Yield the differences between the tables and the rows found."""
    learned: LearnedRelease = parse_learned(_learn(release, place, "--json"), f"LLVM {release}")
    for row in learned.rows:
        if isinstance(row, MissingPassesRow):
            # The pass lists of a row name passes that only its newer releases have.
            continue
        found, known = as_values(row), table_values(row, release)
        if found != known:
            yield f"LLVM {release}, {list_of(row)}: the tools say {found}, the table {known}"
    for one in (*learned.assumed, *learned.refused):
        yield f"LLVM {release}: {one}"


def _learn(release: int, place: str, form: str) -> str:
    command: tuple[str, ...] = (*_DRIVER, f"--llvm={release}", form)
    if place:
        binds = [word for path in _SHARED for word in ("--ro-bind", path, path)]
        system = ("--dev", "/dev", "--proc", "/proc", "--bind", "/tmp", "/tmp")  # noqa: S108
        here = ("--chdir", _HERE, "--setenv", "PYTHONPATH", str(ROOT / ".importroot"))
        command = ("bwrap", *_folders(Path(place)), *system, *binds, *here, *command)
    return subprocess.run(command, cwd=_HERE, stdout=subprocess.PIPE, text=True, check=True).stdout


def _folders(place: Path) -> Iterator[str]:
    """Yield bubblewrap options that mount each directory of a read-only root into an empty one."""
    for entry in sorted(place.iterdir()):
        if entry.is_symlink():
            yield from ("--symlink", str(entry.readlink()), f"/{entry.name}")
        elif entry.name in _SYSTEM:
            yield from ("--ro-bind", str(entry), f"/{entry.name}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--releases", default="15,16,19,22")
    parser.add_argument("--root", action="append", default=[], metavar="N=DIR")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
