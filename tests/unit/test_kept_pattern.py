"""Patterns that an earlier process compiled: they are those that Python compiles now."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlir_offload.toolchain import pattern

SOURCES: tuple[tuple[Any, int], ...] = (
    (r"^(?P<name>@[-\w$.]+) = (?:(?P<kind>global|constant)|[^\n]*?)$", re.MULTILINE),
    (rb"(?<![-\w])x{2,5}?(?P<end>$|\Z)", re.MULTILINE | re.DOTALL),
    (r"[ä-ü€]+|\d\s(?i:ß)", re.IGNORECASE),
    ("plain", 0),
)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let nothing be kept yet, and modules be written."""
    file = tmp_path / "patterns"
    monkeypatch.setattr(pattern, "_file", lambda: file)
    monkeypatch.setattr(pattern, "_new", {})
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    pattern._kept.cache_clear()
    yield file
    pattern._kept.cache_clear()


@pytest.mark.usefixtures("kept")
def test_a_kept_pattern_is_the_one_that_python_compiles() -> None:
    for _ in range(2):
        for source, flags in SOURCES:
            made = pattern.compile_pattern(source, flags)
            # Equal patterns have equal code.
            assert made == re.compile(source, flags)
            assert dict(made.groupindex) == dict(re.compile(source, flags).groupindex)
        pattern.keep_patterns()
        assert len(pattern._new) in {len(SOURCES), 0}
        pattern._kept.cache_clear()
        pattern._new.clear()
        assert set(pattern._kept()) == {(source, int(flags)) for source, flags in SOURCES}


def test_what_another_python_or_a_crash_left_is_not_used(kept: Path) -> None:
    pattern.compile_pattern("a(b)", 0)
    pattern.keep_patterns()
    content = kept.read_bytes()
    for other in (
        content[:-3],
        b"",
        content.replace(sys.version.encode(), b"x" * len(sys.version)),
    ):
        kept.write_bytes(other)
        pattern._kept.cache_clear()
        assert pattern._kept() == {}
        assert pattern.compile_pattern("a(b)", 0) == re.compile("a(b)")


@pytest.mark.usefixtures("kept")
def test_a_damaged_code_is_compiled_again() -> None:
    good = pattern._compiled("a(b)", 0)
    pattern._kept()["a(b)", 0] = (good[0], good[1][:-8], good[2], good[3])
    assert pattern.compile_pattern("a(b)", 0) == re.compile("a(b)")


def test_a_call_keeps_what_it_compiled(kept: Path) -> None:
    code = (
        "from pathlib import Path; from mlir_offload.toolchain import pattern as k\n"
        f"k._file = lambda: Path({str(kept)!r})\n"
        "from mlir_offload.driver import cli\n"
        "cli.main(['nothing.mlir', '-c', '--offload-arch=sm_9O'])"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-B", "-c", code], check=False, capture_output=True)
        assert not kept.exists()
    environment = {"PYTHONPYCACHEPREFIX": str(kept.parent), "PATH": ""}
    subprocess.run([sys.executable, "-c", code], check=False, env=environment, capture_output=True)
    assert kept.stat().st_size > 0
