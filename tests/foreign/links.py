"""Compare links by the driver with links by clang only, for objects of both in many orders.

Each line links MLIR kernels with clang's OpenMP, CUDA C++ or HIP C++, as objects and in libraries of several
types. A line is wrong if clang's program works and the driver cannot link, or if the driver's program links
and does not work. Clang's OpenMP is part of the lines if libomptarget is installed.

usage: python tests/foreign/links.py [--llvm 15 16 19 22] [--kind host cuda hip] [--lines N] [--seed N]
                                [--verbose]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from support.link_lines import HOST, OPENMP, Outcome, make_lines, random_lines  # noqa: E402

KINDS = ("host", "cuda", "hip")


def has_openmp(major: int) -> bool:
    """Return whether programs with clang's OpenMP regions can run."""
    return any(Path(f"/usr/lib/llvm-{major}/lib").glob("libomptarget.so.*"))


def compared(major: int, kind: str, count: int, seed: int) -> Iterator[Outcome]:
    """Yield the results of the lines for one kind."""
    with tempfile.TemporaryDirectory(prefix="mlir-offload-links-") as name:
        made = make_lines(major, kind, Path(name), has_openmp=has_openmp(major))
        pieces = made.pieces
        if has_openmp(major) and made.outcome([(OPENMP, "{}")]).theirs:
            sys.stdout.write(f"LLVM {major}, {kind}: clang's OpenMP does not run here\n")
            pieces = tuple(piece for piece in pieces if piece.kind != HOST)
            if not pieces:
                return
        for line in random_lines(pieces, count, seed):
            yield made.outcome(line)


def summary(outcome: Outcome) -> str:
    """Return the column of the table in which an outcome is counted."""
    ours = "refused" if outcome.is_refused else "wrong" if outcome.ours else "right"
    return f"clang {'wrong' if outcome.theirs else 'right'}, ours {ours}"


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llvm", type=int, nargs="+", default=[15, 16, 19, 22])
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print every line")
    options = parser.parse_args()
    wrong = sum(
        compare(major, kind, options.lines, options.seed, is_shown=options.verbose)
        for major in options.llvm
        for kind in options.kind
    )
    sys.stdout.write(f"{wrong} wrong\n")
    return 1 if wrong else 0


def compare(major: int, kind: str, count: int, seed: int, *, is_shown: bool) -> int:
    """Print the wrong lines and a summary; return the number of wrong lines."""
    counts: Counter[str] = Counter()
    wrong = 0
    try:
        for one in compared(major, kind, count, seed):
            counts[summary(one)] += 1
            if is_shown:
                sys.stdout.write(f"{one.line}\n  clang: {one.theirs}\n  ours: {one.ours}\n")
            if one.is_wrong:
                wrong += 1
                sys.stdout.write("wrong: ")
                sys.stdout.write(f"{one.line}\n  clang: {one.theirs}\n  ours: {one.ours}\n")
    except subprocess.CalledProcessError as error:
        sys.exit(f"LLVM {major}, {kind}: {error.cmd}\n{error.stderr}")
    text = "; ".join(f"{name}: {number}" for name, number in sorted(counts.items()))
    sys.stdout.write(f"LLVM {major}, {kind}: {text}\n")
    sys.stdout.flush()
    return wrong


if __name__ == "__main__":
    sys.exit(main())
