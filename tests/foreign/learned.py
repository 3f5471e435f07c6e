"""Compare the tables with what the tools of each release of LLVM tell (`mlir-offload learn`).

Exit status 1 if they differ. Rows of a table that a release was never asked for are listed. With --write the tables are
changed: new rows, and the release under `checked` of those that hold. A release in the root of another Debian is asked
there, by bubblewrap (apt install bubblewrap).

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
# What a root of another system sees of this one: the interpreter, this tree, CUDA and what is temporary.
_SHARED = (sys.base_prefix, sys.prefix, str(ROOT), "/usr/local")
# Where the driver runs: a report of a crash lies there.
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
    """Yield where the tables differ from what the tools tell."""
    learned: LearnedRelease = parse_learned(_learn(release, place, "--json"), f"LLVM {release}")
    for row in learned.rows:
        if isinstance(row, MissingPassesRow):
            # A recipe names passes that only newer releases of its row have.
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
    """Yield what shows each folder of a root, in which no others can be made, at the top of an empty one."""
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
