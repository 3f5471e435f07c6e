"""Measure the accuracy of the compatibility checks: results of real tools and of the checker for each module.

Every module of the corpus (tests/integration/skew), as written by each installed release of LLVM, is passed
to every other release. The table is written to tests/golden/skew/matrix.csv, the figures to
docs/design/ir-compatibility.md.

usage: python tests/bench/skew_matrix.py [--write] [--checker] [--only REGEX] [--jobs N] [--show]
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from support.bitcode_identity import identity_differences  # noqa: E402
from support.skew_corpus import Case, all_cases, make_module  # noqa: E402
from support.skew_figures import Standing, replace_figures, standing  # noqa: E402
from support.skew_matrix import GOLDEN, Row, measure, read_rows, recheck, sort_rows, write_rows  # noqa: E402

DOCUMENT = ROOT / "docs" / "design" / "ir-compatibility.md"


def measure_all(only: str, jobs: int, folder: Path, known: list[Row]) -> list[Row]:
    """Return the rows of all cases whose names match; print the files that are misread.

    If the rows are known, only the checker is rerun.
    """
    cases = [case for name, case in all_cases().items() if re.search(only, name)]
    pairs = [(case, release) for case in cases for release in case.releases]

    def run(pair: tuple[Case, int]) -> list[Row]:
        module = make_module(*pair, folder)
        if "bc" in module.case.forms:
            for difference in identity_differences(module.form("bc"), module.release):
                say(f"{module.name} is read otherwise than by llvm-bcanalyzer: {difference}")
        return list(recheck(module, known) if known else measure(module))

    with ThreadPoolExecutor(jobs) as pool:
        rows = [row for rows in pool.map(run, pairs) for row in rows]
    return sort_rows(rows, cases)


def say(line: str) -> None:
    """Print immediately, because the matrix takes minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def show(rows: list[Row]) -> None:
    """Print each pair that the checker misses or flags falsely, with the evidence."""
    for row in rows:
        for cell in row.cells:
            found = standing(cell)
            if found in {Standing.MISSED, Standing.FALSE_ALARM}:
                words = f"{row.module} {row.form} {row.producer} -> {cell.consumer}: {cell.outcome}"
                say(f"{found}: {words} {' '.join(cell.rules)} {cell.evidence}")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the table and the figures")
    parser.add_argument(
        "--show", action="store_true", help="print what is missed or flagged wrongly"
    )
    parser.add_argument(
        "--checker", action="store_true", help="keep what the table has of the tools"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="only cases that match")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write takes the whole corpus")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        known = read_rows(GOLDEN) if options.checker else []
        rows = measure_all(options.only, options.jobs, Path(folder), known)
    say(f"{sum(len(row.cells) for row in rows)} pairs in {time.monotonic() - begin:.0f} s")
    if options.show:
        show(rows)
    if options.write:
        write_rows(GOLDEN, rows)
        text = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(replace_figures(text, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
