"""What LLVM IR in text says of offloading: embedded device images, entries, what produced it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from mlir_offload.offload.abi import EntryLayout
from mlir_offload.offload.container.scan import FoundImage, Report, scan_binaries
from mlir_offload.offload.host.entry_members import elf_name_of, entry_of, layout_of
from mlir_offload.offload.host.object_entry import HostEntry
from mlir_offload.toolchain.byte_view import ByteView, memory_view

_TRIPLE = re.compile(rb'^target triple = "([^"\n]*)"', re.MULTILINE)
_IDENTIFICATION = re.compile(rb'^!\d+ = !\{!"([^"\n]* version [^"\n]*)"\}', re.MULTILINE)
_STRING = re.compile(rb'^@([^\s=]+) = [^\n"]*constant \[\d+ x i8\] c"([^"\n]*)"', re.MULTILINE)
_SECTION = re.compile(rb'", section "\.llvm\.offloading"')
_ENTRY = re.compile(
    rb'^@[^\n=]+ = [^\n{]*constant (?:%[\w.]+|\{[^{}\n]*\}) \{ ([^{}\n]*) \}, section "([^"\n]+)"',
    re.MULTILINE,
)
_NUMBER = re.compile(r"i\d+ (-?\d+)")
_NAME = re.compile(r'@("[^"]*"|[\w.$-]+)')
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2}|\\)")


class HostText:
    """A module in text, read once."""

    def __init__(self, view: ByteView) -> None:
        """Keep the text; nothing is looked at yet."""
        self._view = view
        self._text = view.whole()

    @property
    def triple(self) -> str:
        """Return the target triple; empty where there is none."""
        found = _TRIPLE.search(self._text)
        return _decoded(found[1]) if found else ""

    @property
    def producers(self) -> tuple[str, ...]:
        """Return what `llvm.ident` says, each program once."""
        found = (_decoded(match[1]) for match in _IDENTIFICATION.finditer(self._text))
        return tuple(dict.fromkeys(found))

    def images(self, report: Report) -> Iterator[FoundImage]:
        """Return the images of the embedded objects."""
        for match in _STRING.finditer(self._text):
            if _SECTION.match(self._text, match.end() - 1):
                data = _unescaped(match[2])
                yield from scan_binaries(memory_view(data, location=self._view.location), report)

    def entries(self) -> Iterator[HostEntry]:
        """Return the offload entries in their order; what no layout has is passed over."""
        names = {_decoded(match[1]): match[2] for match in _STRING.finditer(self._text)}
        for match in _ENTRY.finditer(self._text):
            members = [part.strip() for part in _decoded(match[1]).split(",")]
            section = elf_name_of(_decoded(match[2]))
            layout = layout_of(section, len(members))
            if layout is not None:
                yield entry_of(layout, section, _members(layout, members, names))


def _members(
    layout: EntryLayout, stored: Sequence[str], names: Mapping[str, bytes]
) -> Iterator[tuple[str, int, str]]:
    """Return each member with its number and the string that it points to."""
    for field, text in zip(layout.fields, stored, strict=True):
        symbol = _NAME.search(text)
        string = names.get(symbol[1], b"") if symbol else b""
        yield field.name, _number(text), _decoded(_unescaped(string).rstrip(b"\0"))


def _number(text: str) -> int:
    found = _NUMBER.search(text)
    return int(found[1]) if found else 0


def _unescaped(text: bytes) -> bytes:
    return _ESCAPE.sub(
        lambda match: b"\\" if match[1] == b"\\" else bytes.fromhex(match[1].decode()), text
    )


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")
