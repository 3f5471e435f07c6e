"""Coverage-guided fuzzing of every reader of untrusted input (libFuzzer, through atheris).

usage: python tests/fuzz/readers.py [LIBFUZZER-OPTION...] CORPUS tests/fuzz/seeds

A reader may return, or raise an error class of mlir-offload. Anything else, more than 5 s per input or more
than 1 GiB of memory ends the run and writes the input to `crash-*`, `timeout-*` or `oom-*`. `make fuzz` runs
until it is interrupted, and writes such a file to the seeds; commit it with the fix.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".importroot"))

with atheris.instrument_imports(include=["mlir_offload"]):
    from mlir_offload.offload.container.archive import iterate_members
    from mlir_offload.offload.container.binary import read_binary
    from mlir_offload.offload.container.bundle import read_bundles
    from mlir_offload.offload.container.fatbin import read_fatbins
    from mlir_offload.offload.container.mob_archive import read_archive
    from mlir_offload.offload.container.mob_manifest import read_manifest
    from mlir_offload.offload.container.offload_section import read_section
    from mlir_offload.offload.device.bitcode import read_device_bitcode
    from mlir_offload.offload.device.code import read_device_code
    from mlir_offload.offload.elf import read_elf
    from mlir_offload.offload.file.contents_reader import read_contents_of
    from mlir_offload.offload.file.verify import verify_contents
    from mlir_offload.offload.host.object_entry import read_entries
    from mlir_offload.offload.link.plain_object import read_plain
    from mlir_offload.toolchain.bitcode.module import read_bitcode_modules
    from mlir_offload.toolchain.bitcode.skew import check_module
    from mlir_offload.toolchain.byte_view import ByteView, memory_view
    from mlir_offload.toolchain.skew.fact import Consumer
from mlir_offload.toolchain.errors import MlirOffloadError

_OLDEST = 15


def _elf(view: ByteView) -> None:
    elf = read_elf(view)
    read_entries(elf)
    for table in (".symtab", ".dynsym"):
        list(elf.symbols(table))


def _plain(view: ByteView) -> None:
    # What this reader reads, the general ones read, too.
    plain = read_plain(view)
    if plain is None:
        return
    try:
        elf = read_elf(view)
        read = read_entries(elf), tuple(elf.undefined_names())
        sections = [read_section(elf.content(one)) for one in elf.named(".llvm.offloading")]
    except MlirOffloadError as error:
        raise AssertionError from error
    assert (plain.entries, plain.undefined) == read
    images = [image.data for section in sections for image in section]
    assert [image.data for image in plain.images] == images


def _fatbins(view: ByteView) -> None:
    for image in read_fatbins(view):
        image.content.whole()


def _bundles(view: ByteView) -> None:
    for bundle in read_bundles(view):
        for image in bundle.images:
            image.content.whole()


def _bitcode(view: ByteView) -> None:
    # Like check, read all records that an older release may not support.
    for module in read_bitcode_modules(view):
        list(check_module(module, Consumer(_OLDEST)))


def _hashed_bitcode(view: ByteView) -> None:
    read_device_bitcode(view, with_hashes=True)


def _mob(view: ByteView) -> None:
    read_manifest(read_archive(view), "file")


def _contents(view: ByteView) -> None:
    # Like inspect, which reports corrupt input instead of raising an error.
    verify_contents(read_contents_of(view, "file", with_hashes=True))


READERS: tuple[Callable[[ByteView], object], ...] = (
    _elf,
    _plain,
    lambda view: list(iterate_members(view)),
    read_binary,
    _bundles,
    _fatbins,
    _bitcode,
    _hashed_bitcode,
    read_device_code,
    _mob,
    _contents,
)


def read_all(data: bytes) -> None:
    """Pass the input to every reader; all but one reject it by its first bytes."""
    for read in READERS:
        with contextlib.suppress(MlirOffloadError):
            read(memory_view(data))


if __name__ == "__main__":
    atheris.Setup([sys.argv[0], "-timeout=5", "-rss_limit_mb=1024", *sys.argv[1:]], read_all)
    atheris.Fuzz()
