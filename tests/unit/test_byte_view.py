from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlir_offload.toolchain.byte_view import memory_view, open_view
from mlir_offload.toolchain.errors import InputOutputError, VerificationError

PAIR = struct.Struct("<II")


@given(st.binary(max_size=64), st.integers(-4, 80), st.integers(-4, 80))
def test_a_read_gives_just_the_bytes_asked_for_or_fails(
    data: bytes, offset: int, size: int
) -> None:
    view = memory_view(data)
    if offset >= 0 and size >= 0 and offset + size <= len(data):
        assert view.read(offset, size, "field") == data[offset : offset + size]
        assert view.part(offset, size, "field").whole() == data[offset : offset + size]
    else:
        with pytest.raises(VerificationError, match=f"field at offset {offset}:"):
            view.read(offset, size, "field")


def test_offsets_in_errors_are_those_in_the_file() -> None:
    inner = memory_view(bytes(100), form="box", location="a.o").part(
        40, 20, "drawer", form="drawer"
    )
    with pytest.raises(VerificationError, match="malformed drawer: nail at offset 58: 4 bytes") as caught:  # fmt: skip
        inner.read(18, 4, "nail")
    assert caught.value.location == "a.o"
    assert caught.value.hint


def test_structures_and_tables_are_unpacked() -> None:
    view = memory_view(struct.pack("<6I", *range(6)))
    assert view.unpack(PAIR, 4, "pair") == (1, 2)
    assert list(view.table(PAIR, 8, 2, "pairs")) == [(2, 3), (4, 5)]
    with pytest.raises(VerificationError, match="pairs at offset 8"):
        view.table(PAIR, 8, 1 << 60, "pairs")


def test_strings_end_at_a_nul_within_the_view_and_the_limit() -> None:
    view = memory_view(b"short\0" + b"x" * 1000 + b"\0" + b"no end")
    assert view.text(0, "name") == "short"
    assert view.text(6, "name") == "x" * 1000
    for offset, limit in ((1007, 1 << 16), (6, 100)):
        with pytest.raises(VerificationError, match=r"name at offset \d+: the string has no end"):
            view.text(offset, "name", limit=limit)


def test_the_same_bytes_may_not_be_read_without_end() -> None:
    view = memory_view(bytes(1 << 16))

    def read_often() -> None:
        for _ in range(10_000):
            view.whole()

    with pytest.raises(VerificationError, match="named too often"):
        read_often()


def test_a_file_is_read_in_pieces_and_after_it_was_closed(tmp_path: Path) -> None:
    content = bytes(range(256)) * 20
    (tmp_path / "file").write_bytes(content)
    with open_view(tmp_path / "file") as view:
        assert b"".join(view.chunks(1000)) == content
        assert view.head(3) == b"\0\1\2"
    assert view.part(256, 256, "part").whole() == bytes(range(256))


def test_a_file_that_is_cut_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    # A small file is read at once.
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    with open_view(tmp_path / "file") as view:
        (tmp_path / "file").write_bytes(bytes(10))
        with pytest.raises(VerificationError, match="the file ends early"):
            view.whole()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputOutputError, match="missing: No such file"), open_view(tmp_path / "missing"):  # fmt: skip
        pass
