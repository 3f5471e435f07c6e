"""Pass real code of each writing release to each reader, and compare the results with the checker.

usage: python tests/foreign/pairs.py [--releases=14,...,22] [--root=N=DIR] [--only=REGEX] [--show] [--write]

It takes about ten minutes with two processors, and downloads sources and readers. The table is written to
tests/golden/skew/pairs.csv, the figures to docs/design/foreign-pairs.md. Exit status 1 if the checker misses
a wrong pair, misses more than 1 % of the rejected pairs, or rejects a correct pair.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.pair_corpus import make_corpus  # noqa: E402
from foreign.pair_figures import (  # noqa: E402
    Pair,
    Standing,
    is_within_bounds,
    read_pairs,
    render_page,
    write_pairs,
)
from foreign.pair_verdict import Subject, judge, subject_of, unknown_intrinsics  # noqa: E402
from foreign.reader import Reader, add_reader_options, chosen_readers  # noqa: E402
from foreign.source_package import default_cache  # noqa: E402

from mlir_offload.offload.skew.check import check_file  # noqa: E402
from mlir_offload.toolchain.skew.fact import Consumer  # noqa: E402
from mlir_offload.toolchain.skew.identity import Severity  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "skew" / "pairs.csv"
PAGE = ROOT / "docs" / "design" / "foreign-pairs.md"


def main() -> int:
    """Measure; return the exit status."""
    options = _options()
    begin = time.monotonic()
    if options.checker:
        pairs = [_checked_again(pair) for pair in read_pairs(GOLDEN)]
    else:
        pairs = list(measure(chosen_readers(options), options.only))
    say(f"{len(pairs)} pairs in {time.monotonic() - begin:.0f} s")
    for pair in pairs:
        if options.show and pair.standing in {Standing.MISSED, Standing.FALSE_ALARM}:
            say(f"{pair.standing}: {pair}")
    if options.write:
        write_pairs(GOLDEN, pairs)
        PAGE.write_text(render_page(pairs), encoding="utf-8")
    return 0 if is_within_bounds(pairs) else 1


def measure(readers: Sequence[Reader], only: str) -> Iterator[Pair]:
    """Yield all pairs of the corpus and the readers, in order; the newest reader compares the texts."""
    newest = readers[-1]
    own = {reader.release: reader for reader in readers}
    jobs = [
        job
        for job in make_corpus(_corpus(), readers)
        if re.search(only, f"{job.name} {job.output.suffixes}")
    ]
    with ThreadPoolExecutor(2) as pool:
        subjects = list(pool.map(lambda job: subject_of(job, own[job.release], newest), jobs))
        unknown = unknown_intrinsics(readers, subjects)

        def measured(pair: tuple[Subject, Reader]) -> Pair:
            subject, reader = pair
            verdict = judge(subject, reader, newest, unknown)
            job = subject.job
            rules = _errors(job.output, reader.release)
            words = (verdict.outcome, rules, verdict.evidence)
            return Pair(job.name, job.writer, job.release, reader.release, *words)

        yield from pool.map(measured, [(one, reader) for one in subjects for reader in readers])


def _corpus() -> Path:
    return default_cache() / "pairs"


def _checked_again(pair: Pair) -> Pair:
    files = _corpus().glob(f"{pair.name}.{pair.writer}{pair.written_by}.bc")
    path = next(iter(files), _corpus() / f"{pair.name}.{pair.writer}.bc")
    return pair.with_rules(_errors(path, pair.read_by))


def _errors(path: Path, release: int) -> tuple[str, ...]:
    """Return the rules of the errors that the checker reports."""
    found = check_file(path, Consumer(llvm=release))
    return tuple(sorted({one.rule for one in found if one.severity is Severity.ERROR}))


def say(line: str) -> None:
    """Print immediately, because a run takes long."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_reader_options(parser)
    parser.add_argument("--only", default="", metavar="REGEX", help="only modules that match")
    parser.add_argument("--checker", action="store_true", help="keep what the readers did")
    parser.add_argument(
        "--show", action="store_true", help="print what is missed or rejected wrongly"
    )
    parser.add_argument("--write", action="store_true", help="replace the table and the page")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
