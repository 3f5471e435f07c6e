"""Find rows of docs/reference/gpu-ops.yaml that are executed: tests run programs with their operations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from support.host_operations import HOST
from support.operation_probe import text_of
from support.operation_results import probes_for
from support.operation_table import cases_in

_MATRICES, _CLUSTERS = HOST.with_name("matrices.mlir"), HOST.with_name("clusters.mlir")
# Programs with operations that only some device kinds have.
ADDED = dict.fromkeys(("cuda", "cpu"), (_MATRICES, _CLUSTERS))
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
_OPERATION = re.compile(r"\bgpu\.(\w+)([^\n]*)")
# Names, numbers and memref types do not characterize a use of an operation.
_LEFT_OUT = re.compile(r'"[^"]*"|[%@!#^][\w$.:]*|memref<[^>]*>+|//.*')
# An operation continues on the next line before these words.
_CONTINUED = re.compile(r"\n +(?=threads|dynamic_shared|workgroup|private|args|kernel)")
_WORD = re.compile(r"[a-z]\w*")
Uses = dict[str, set[frozenset[str]]]


def uses_in(texts: Iterable[str]) -> Uses:
    """Return the uses of each operation of the gpu dialect, each as the set of words on its line."""
    found: Uses = {}
    for text in texts:
        for match in _OPERATION.finditer(_CONTINUED.sub(" ", text)):
            words = frozenset(_WORD.findall(_LEFT_OUT.sub(" ", match[2])))
            found.setdefault(match[1], set()).add(words)
    return found


@cache
def _examples() -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.mlir")))


@cache
def executed_uses(target: str, release: int) -> Uses:
    """Return the uses that run on a device kind: examples and, except on spirv64, probes and host operations.

    Matrix operations and clusters run on NVIDIA GPUs and the CPU.
    """
    if target == "spirv":
        return uses_in(_examples())
    inputs = (HOST, *ADDED.get(target, ()))
    texts = (path.read_text(encoding="utf-8") for path in inputs)
    return uses_in((*_examples(), *texts, text_of(probes_for(32), release)))


@cache
def probed_uses(release: int) -> Uses:
    """Return the uses in the probes of a release, which run on the CPU and on GPUs of both vendors."""
    return uses_in([text_of(probes_for(32), release)])


def is_executed(row: Mapping[str, Any], target: str, releases: Iterable[int]) -> bool:
    """Return whether each use of an operation in a row is executed."""
    cases = [(release, case) for release in releases for case in cases_in(row, release)]
    return bool(cases) and all(
        is_among(case.text, executed_uses(target, release)) for release, case in cases
    )


def is_among(text: str, uses: Uses) -> bool:
    """Return whether `uses` contains each use of an operation in a text."""
    return all(
        any(words <= run for run in uses.get(name, ()))
        for name, found in uses_in([text]).items()
        for words in found
    )
