"""The cache of a parsed table is next to it, and valid only for the same file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mlir_offload.toolchain import tables


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a table of a package of its own."""
    folder = tmp_path / "toolchain"
    (folder / "data").mkdir(parents=True)
    monkeypatch.setattr(tables, "__file__", str(folder / "tables.py"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    file = folder / "data" / "rows.yaml"
    file.write_text("rows: [1]\n")
    return file


def load() -> object:
    return tables.load_table("mlir_offload.toolchain", "rows")


def kept(table: Path) -> list[Path]:
    return list((table.parent / "__pycache__").glob("rows.*"))


def test_the_second_reading_needs_no_yaml(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load() == {"rows": [1]}
    assert len(kept(table)) == 1

    def fail(_: str) -> None:
        pytest.fail("it was parsed again")

    monkeypatch.setattr(tables, "_parse", fail)
    assert load() == {"rows": [1]}


def test_another_table_is_read_anew(table: Path) -> None:
    load()
    status = table.stat()
    table.write_text("rows: [2]\n")
    os.utime(table, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert load() == {"rows": [2]}
    table.write_text("rows: [2, 3]\n")
    os.utime(table, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert load() == {"rows": [2, 3]}


@pytest.mark.parametrize("content", [b"", b"x", b"(\x02\x00\x00\x00", b"N", b"\x80\x05\x95" * 21])
def test_what_is_no_kept_table_is_written_anew(content: bytes, table: Path) -> None:
    load()
    (file,) = kept(table)
    whole = file.read_bytes()
    file.write_bytes(content)
    assert load() == {"rows": [1]}
    assert file.read_bytes() == whole


def test_where_nothing_may_be_written_it_is_read_all_the_same(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert load() == {"rows": [1]}
    assert kept(table) == []
    # A file has the name of the cache directory.
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (table.parent / "__pycache__").write_text("")
    assert load() == {"rows": [1]}
