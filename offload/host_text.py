"""What LLVM IR in text says of offloading: embedded device images, entries, what produced it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlir_offload.offload.abi import EntryLayout, entry_layouts, kind_names
from mlir_offload.offload.container_scan import FoundImage, Report, scan_binaries
from mlir_offload.offload.host_entry import HostEntry
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
_COFF_SUFFIX = "$"


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
            section = _decoded(match[2]).partition(_COFF_SUFFIX)[0]
            layout = _layout(section, len(members))
            if layout is not None:
                yield _entry(layout, members, section, names)


def _layout(section: str, members: int) -> EntryLayout | None:
    """Return the layout of that many members which has its entries in the section."""
    found = (
        layout
        for layout in entry_layouts()
        if len(layout.fields) == members and section in dict(layout.sections).values()
    )
    return next(found, None)


def _entry(
    layout: EntryLayout, members: list[str], section: str, names: dict[str, bytes]
) -> HostEntry:
    stored = {field.name: text for field, text in zip(layout.fields, members, strict=True)}
    symbol = _NAME.search(stored["name"])
    name = names.get(symbol[1], b"") if symbol else b""
    kind = dict(kind_names()).get(_number(stored.get("kind", "")), "")
    own = (kind for kind, base in layout.sections if base == section)
    return HostEntry(
        kind=kind or next(own, ""),
        name=_decoded(_unescaped(name).rstrip(b"\0")),
        size_bytes=_number(stored["size"]),
        flags=_number(stored["flags"]),
        data=_number(stored["data"]),
        section=section,
        fields=len(layout.fields),
    )


def _number(text: str) -> int:
    found = _NUMBER.search(text)
    return int(found[1]) if found else 0


def _unescaped(text: bytes) -> bytes:
    return _ESCAPE.sub(
        lambda match: b"\\" if match[1] == b"\\" else bytes.fromhex(match[1].decode()), text
    )


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")
