from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from support.hostile import (
    assert_bounded,
    bit_flips,
    extreme_fields,
    spliced,
    survives,
    truncations,
)

from mlir_offload.offload.elf import ElfFile, ElfType, Machine, read_elf
from mlir_offload.toolchain.byte_view import memory_view, open_view
from mlir_offload.toolchain.errors import InputOutputError, VerificationError

CLANG = "/usr/lib/llvm-22/bin/clang"
SOURCE = """
const char *names[] = {"first", "second"};
int answer = 42;
int twice(int x) { return x + answer; }
extern int other(int);
int main(void) { return other(twice(0)); }
"""


def read(data: bytes) -> object:
    """Read all that a file can be asked for."""
    elf = read_elf(memory_view(data))
    for section in elf.sections:
        elf.content(section)
        elf.pointers(section)
    return [list(elf.symbols(".symtab")), list(elf.symbols(".dynsym"))]


@pytest.fixture(scope="module")
def relocatable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("elf") / "a.o"
    subprocess.run([CLANG, "-x", "c", "-", "-c", "-o", path], input=SOURCE, text=True, check=True)
    return path


@pytest.fixture(scope="module")
def shared(relocatable: Path) -> Path:
    path = relocatable.with_name("a.so")
    subprocess.run([CLANG, "-x", "c", "-", "-shared", "-fPIC", "-o", path], input=SOURCE, text=True, check=True)  # fmt: skip
    return path


@pytest.mark.llvm(22)
@pytest.mark.parametrize("name", ["relocatable", "shared"])
def test_sections_and_symbols_are_those_that_pyelftools_reads(
    name: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(name)
    with open_view(path) as view, path.open("rb") as stream:
        ours, theirs = read_elf(view), ELFFile(stream)
        assert [
            (s.name, s.flags, s.address, s.offset, s.size, s.link, s.info) for s in ours.sections
        ] == [
            (s.name, *(s[f"sh_{f}"] for f in ("flags", "addr", "offset", "size", "link", "info")))
            for s in theirs.iter_sections()
        ]
        for table in (".symtab", ".dynsym"):
            section = theirs.get_section_by_name(table)
            assert section is None or isinstance(section, SymbolTableSection)
            expected = [(s.name, s["st_value"], s["st_size"]) for s in section.iter_symbols()] if section else []  # fmt: skip
            assert [(s.name, s.value, s.size) for s in ours.symbols(table)] == expected


@pytest.mark.llvm(22)
def test_pointers_lead_to_strings_before_and_after_the_link(
    relocatable: Path, shared: Path
) -> None:
    for path in (relocatable, shared):
        with open_view(path) as view:
            elf = read_elf(view)
            assert elf.machine == Machine.X86_64
            assert elf.is_relocatable == (elf.type == ElfType.RELOCATABLE)
            place = next(s for s in elf.symbols(".symtab") if s.name == "names")
            section = elf.sections[place.section]
            base = place.value - section.address * (not elf.is_relocatable)
            found = elf.pointers(section)
            assert [elf.text_of(found[base + at]) for at in (0, 8)] == ["first", "second"]


@pytest.mark.llvm(22)
def test_undefined_symbols_are_told_from_defined_ones(relocatable: Path) -> None:
    with open_view(relocatable) as view:
        symbols = {symbol.name: symbol for symbol in read_elf(view).symbols(".symtab")}
    assert symbols["other"].is_undefined
    assert not symbols["twice"].is_undefined
    assert symbols["twice"].is_function
    assert symbols["twice"].is_global


@pytest.mark.llvm(22)
def test_a_damaged_file_is_refused_whatever_the_damage(relocatable: Path) -> None:
    data = relocatable.read_bytes()
    table = struct.unpack_from("<Q", data, 40)[0]
    assert survives(read, truncations(data)) > 0
    survives(read, bit_flips(data[:table], step=7))
    headers = (data[:table] + bytes(change) for change in bit_flips(data[table:]))
    assert survives(read, headers) > 0
    assert survives(read, extreme_fields(data, limit=64)) > 0
    assert survives(read, spliced(data, 500)) > 0


def _file(sections: list[tuple[int, ...]], content: bytes, names: int) -> bytes:
    """Return a file of these section headers (name, type, offset, size, link, info)."""
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 1, 62, 1, 0, 0, 64 + len(content), 0, 64, 0, 0, 64, len(sections), names)  # fmt: skip
    rows = (
        struct.pack("<IIQQQQIIQQ", n, t, 0, 0, o, s, link, i, 1, 24)
        for n, t, o, s, link, i in sections
    )
    return head + content + b"".join(rows)


def test_many_headers_that_name_the_same_bytes_cost_no_more_than_the_file() -> None:
    content = b"\0" + b"\1" * 65533 + b"\0\0"
    strings = (0, 3, 64, len(content), 0, 0)
    tables = [(0, 4, 64, len(content), 2, 0)] * 5000
    overlapping = _file([strings, (0, 1, 64, 8, 0, 0), strings, *tables], content, 0)
    with pytest.raises(VerificationError, match="named too often"):
        read(overlapping)
    names = [(1 + number, 1, 0, 0, 0, 0) for number in range(20000)]
    with pytest.raises(VerificationError, match="overlap too often"):
        read(_file([strings, *names], content, 0))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({4: 1}, "identification"),
        ({58: 63}, "section header size"),
        ({62: 9}, "section name index"),
        ({40: 0xF0, 47: 0x7F}, "section headers at offset"),
        ({60: 0xFF, 61: 0xFF}, "section headers at offset"),
    ],
)
def test_errors_name_the_field(changes: dict[int, int], field: str) -> None:
    data = bytearray(_file([(0, 3, 64, 2, 0, 0)], b"\0\0", 0))
    for offset, value in changes.items():
        data[offset] = value
    with pytest.raises(VerificationError, match=f"malformed ELF file: {field}"):
        read_elf(memory_view(bytes(data)))


def test_memory_stays_within_a_multiple_of_the_file() -> None:
    content = b"\0" * (1 << 20)
    assert_bounded(read, _file([(0, 3, 64, len(content), 0, 0)] * 9, content, 0), 4)


def test_a_file_that_changes_after_it_was_opened_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(1 << 20))
    with open_view(path) as view:
        assert view.whole() == bytes(1 << 20)
    assert view.read(0, 4, "start") == bytes(4)
    path.write_bytes(bytes(50))
    with pytest.raises(InputOutputError, match="changed while it was being read"):
        view.read(0, 4, "start")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with (
            pytest.raises(InputOutputError, match="not a regular file"),
            open_view(tmp_path / name),
        ):
            pass


def test_a_file_without_sections_has_none() -> None:
    data = bytearray(_file([], b"", 0))
    data[40:48] = bytes(8)
    elf: ElfFile = read_elf(memory_view(bytes(data)))
    assert elf.sections == ()
