"""Copy a part of a file to another one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlir_offload.toolchain.byte_view import ByteView, copy_view, memory_view, open_view, write_all
from mlir_offload.toolchain.errors import VerificationError

CONTENT = bytes(range(256)) * 5000
PART = (3, 1_200_000)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[ByteView]:
    (tmp_path / "source").write_bytes(CONTENT)
    with open_view(tmp_path / "source") as view:
        yield view


@pytest.fixture
def target(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "target", os.O_WRONLY | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def refuse(*_: object, **__: object) -> int:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@pytest.mark.parametrize("missing", [(), ("copy_file_range",), ("copy_file_range", "sendfile")])
def test_a_part_is_appended_by_whatever_works(
    missing: tuple[str, ...],
    source: ByteView,
    target: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in missing:
        monkeypatch.setattr(os, name, refuse)
    write_all(b"head", target)
    copy_view(source.part(*PART, "content"), target)
    write_all(b"tail", target)
    expected = CONTENT[PART[0] : sum(PART)]
    assert (tmp_path / "target").read_bytes() == b"head" + expected + b"tail"


def test_a_copy_goes_on_where_the_kernel_stopped(
    source: ByteView, target: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = os.copy_file_range

    def once(origin: int, place: int, size: int, *, offset_src: int) -> int:
        if offset_src:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return copy(origin, place, min(size, 1000), offset_src=offset_src)

    monkeypatch.setattr(os, "copy_file_range", once)
    copy_view(source, target)
    assert (tmp_path / "target").read_bytes() == CONTENT


def test_bytes_in_memory_are_appended(target: int, tmp_path: Path) -> None:
    copy_view(memory_view(CONTENT), target)
    assert (tmp_path / "target").read_bytes() == CONTENT


def test_a_file_that_shrinks_meanwhile_is_an_error(
    source: ByteView, target: int, tmp_path: Path
) -> None:
    os.truncate(tmp_path / "source", 100)
    with pytest.raises(VerificationError, match="the file ends early"):
        copy_view(source, target)


def test_a_target_that_cannot_be_written_is_an_error(source: ByteView) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError, match="No space left"):
        copy_view(source, descriptor)
    os.close(descriptor)
