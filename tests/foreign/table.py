"""Read, compare and write the table of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from foreign.result import YES, Result, parse_row, regressions, render_row

_COLUMNS = ("program", "target", "linked", "verified", "run", "CHECK", "status", "reason")
_INTRODUCTION = """# Upstream's GPU programs, LLVM {version}

MLIR's own integration tests for GPUs, compiled by mlir-offload for every target.
`python tests/foreign/run.py --llvm={major}` gets them from the distribution's source package, compiles
them again and fails if a step that succeeds below no longer does; `--update` writes this page.

Paths are relative to mlir/test/Integration, or to mlir/test. A test of a conversion is a file of functions: each is
compiled as a function that kernels of other files call. *linked*: the driver compiled and linked the program, and
found all of its kernels in the result. *verified*: `mlir-offload inspect` found no error. *run*: the
program ended by itself, on the CPU (host) or on an OpenCL device (spirv64); upstream only compiles some.
*CHECK*: FileCheck accepts its output. *status*: its exit status, not 0 if it has to fail an assertion. A program
is *correct* if it ran, ended with the status that it should have, and no check failed. Programs for GPUs are not
executed. LLVM 19 cannot link for spirv64: LLVM 22 links what it lowers. The pass sparsification-and-bufferization of
LLVM 19 has no option parallelization-strategy, so that it makes no kernels of sparse loops.
"""


def page_path(root: Path, major: int) -> Path:
    """Return the page of a release."""
    return root / "docs" / "reference" / f"upstream-programs-{major}.md"


def read_page(path: Path) -> dict[tuple[str, str], Result]:
    """Return the results that a page records; none if there is no page."""
    if not path.exists():
        return {}
    rows = map(parse_row, path.read_text(encoding="utf-8").splitlines())
    return {row.key: row for row in rows if row is not None}


def render_page(version: str, results: Iterable[Result]) -> str:
    """Return the page: a summary of each directory, then all rows."""
    rows = sorted(results, key=lambda result: result.key)
    major = version.partition(".")[0]
    parts = [_INTRODUCTION.format(version=version, major=major)]
    for folder in dict.fromkeys(_folder(row) for row in rows):
        own = [row for row in rows if _folder(row) == folder]
        parts.append(f"## {folder}\n\n{_summary(own)}\n{_table(own)}")
    return "\n".join(parts)


def _folder(row: Result) -> str:
    """Return the directory of a dialect or conversion, or GPU."""
    parts = row.program.split("/")
    return parts[0] if parts[0] == "GPU" else "/".join(parts[:2])


def _summary(rows: Sequence[Result]) -> str:
    lines = [_line("target", "programs", "linked and verified", "correct", "expected status")]
    lines.append("|---|---|---|---|---|")
    for name in sorted({_target(row) for row in rows}):
        own = [row for row in rows if _target(row) == name]
        counts = (
            len(own),
            sum(row.is_good for row in own),
            sum(row.is_correct for row in own),
            sum(row.ends_well for row in own),
        )
        lines.append(_line(name, *map(str, counts)))
    return "\n".join(lines) + "\n"


def _target(row: Result) -> str:
    return "sm_90, sm_90a" if row.target.startswith("sm_") else row.target


def _table(rows: Iterable[Result]) -> str:
    head = [_line(*_COLUMNS), "|" + "---|" * len(_COLUMNS)]
    return "\n".join([*head, *map(render_row, rows)]) + "\n"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def compare(
    recorded: Mapping[tuple[str, str], Result], found: Iterable[Result]
) -> tuple[list[str], list[str]]:
    """Return a line for each result that regressed, and one for each other difference."""
    worse, other = [], []
    for result in found:
        before = recorded.get(result.key)
        name = f"{result.program} for {result.target}"
        if before is None:
            other.append(f"{name}: not recorded")
        elif lost := regressions(before, result):
            worse.append(f"{name}: no longer {', '.join(lost)}: {result.reason}")
        elif before != result:
            other.append(f"{name}: {_changes(before, result)}")
    return worse, other


def _changes(before: Result, result: Result) -> str:
    names = ("linked", "verified", "ran", "checked", "status", "reason")
    return ", ".join(
        f"{name} {getattr(before, name)!r} -> {getattr(result, name)!r}"
        for name in names
        if getattr(before, name) != getattr(result, name)
    )


__all__ = ["YES", "compare", "page_path", "read_page", "render_page"]
