"""The producer and requirements of a bitcode file, by our reader and by llvm-bcanalyzer."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from support.bitcode_census import read_bitcode_census
from support.bitcode_corpus import tool

from mlir_offload.toolchain.bitcode.module import read_bitcode
from mlir_offload.toolchain.byte_view import memory_view

_RECORD = re.compile(r"^( *)<(/?)([A-Za-z]\w*)(.*)", re.MULTILINE)
_OPERAND = re.compile(r"\bop\d+=(\d+)")
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Identity:
    """The properties of a file that determine whether another release may read it."""

    producer: str
    epoch: int
    version: int
    triple: str
    data_layout: str
    source_file: str
    thin_summary: int | None
    full_summary: int | None
    attributes: frozenset[tuple[int, int]]
    string_attributes: frozenset[str]


def identity_differences(path: Path, release: int) -> list[str]:
    """Return the differences between our reader and the analyzer of the release that wrote the file."""
    ours, theirs = read_identity(path), analyze_identity(path, release)
    return [
        f"{one.name}: {getattr(ours, one.name)} / {getattr(theirs, one.name)}"
        for one in fields(Identity)
        if getattr(ours, one.name) != getattr(theirs, one.name)
    ]


def read_identity(path: Path) -> Identity:
    """Return the identity according to our reader."""
    view = memory_view(path.read_bytes(), location=str(path))
    module, census = read_bitcode(view), read_bitcode_census(view)
    return Identity(
        module.producer,
        module.epoch,
        module.version,
        module.triple,
        module.data_layout,
        module.source_file,
        module.thin_summary,
        module.full_summary,
        frozenset(census.attributes),
        frozenset(census.string_attributes),
    )


def analyze_identity(path: Path, release: int) -> Identity:
    """Return the identity according to llvm-bcanalyzer."""
    command = (tool(release, "llvm-bcanalyzer"), "--dump", "--disable-histogram", str(path))
    done = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace")
    texts: dict[tuple[str, str], str] = {}
    numbers: dict[tuple[str, str], int] = {}
    kinds: set[tuple[int, int]] = set()
    names: set[str] = set()
    for block, record, operands, line in _records(done.stdout):
        key = (block, record)
        if key == ("PARAMATTR_GROUP_BLOCK_ID", "ENTRY"):
            _take_attributes(operands[2:], kinds, names)
        elif operands and record in {"EPOCH", "VERSION"}:
            numbers.setdefault(key, operands[0])
        elif record in {"STRING", "TRIPLE", "DATALAYOUT", "SOURCE_FILENAME"}:
            printed = re.search(r"record string = '(.*)'", line)
            texts[key] = printed[1] if printed else bytes(operands).decode()
    module = "MODULE_BLOCK"
    return Identity(
        texts["IDENTIFICATION_BLOCK_ID", "STRING"],
        numbers["IDENTIFICATION_BLOCK_ID", "EPOCH"],
        numbers[module, "VERSION"],
        texts.get((module, "TRIPLE"), ""),
        texts.get((module, "DATALAYOUT"), ""),
        texts.get((module, "SOURCE_FILENAME"), ""),
        numbers.get(("GLOBALVAL_SUMMARY_BLOCK", "VERSION")),
        numbers.get(("FULL_LTO_GLOBALVAL_SUMMARY_BLOCK", "VERSION")),
        frozenset(kinds),
        frozenset(names),
    )


def _records(dump: str) -> Iterator[tuple[str, str, list[int], str]]:
    """Yield the block name, record name, operands and line of each record."""
    blocks: list[str] = []
    for match in _RECORD.finditer(dump):
        _, end, name, rest = match.groups()
        if end:
            blocks.pop()
        elif rest.rstrip().endswith("/>") or "op0=" in rest or " codeid=" in rest:
            yield (
                blocks[-1] if blocks else "",
                name,
                [int(one) for one in _OPERAND.findall(rest)],
                rest,
            )
        elif not rest.rstrip().endswith("/>"):
            blocks.append(name)


def _take_attributes(operands: Sequence[int], kinds: set[tuple[int, int]], names: set[str]) -> None:
    """Parse the attributes of a group (AttributeList in llvm/lib/Bitcode/Reader/BitcodeReader.cpp)."""
    at = 0
    while at < len(operands):
        form = operands[at]
        if form in {3, 4}:
            end = operands.index(0, at + 1)
            names.add(bytes(operands[at + 1 : end]).decode())
            at = (operands.index(0, end + 1) if form == 4 else end) + 1
        else:
            kinds.add((form, operands[at + 1]))
            at += _length(form, operands[at:])


def _length(form: int, operands: Sequence[int]) -> int:
    if form in {0, 5}:
        return 2
    if form in {1, 6}:
        return 3
    if form == 7:
        return 3 + _range_length(operands[2], operands[3])
    assert form == 8, form
    at = 4
    for _ in range(operands[2]):
        at += _range_length(operands[3], operands[at])
    return at


def _range_length(bits: int, first: int) -> int:
    """Return the number of operands of two bounds; for wide ones, the first operand has their word counts."""
    return 2 if bits <= 64 else 1 + (first & 0xFFFFFFFF) + (first >> 32)
