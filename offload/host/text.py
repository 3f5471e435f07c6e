"""Read the offload data in textual LLVM IR: embedded device images, entries, producers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mlir_offload.offload.abi import EntryLayout
from mlir_offload.offload.container.scan import FoundImage, Report, scan_binaries
from mlir_offload.offload.host.entry import elf_name_of, entry_of, layout_of
from mlir_offload.offload.host.object_entry import HostEntry
from mlir_offload.offload.ir_syntax import unescape_bytes
from mlir_offload.toolchain.byte_view import ByteView, memory_view
from mlir_offload.toolchain.pattern import ir_line_bytes, ir_pattern
from mlir_offload.toolchain.target import AMDGPU_TRIPLE, NVPTX_TRIPLE, SPIRV_TRIPLE

_TRIPLE = ir_line_bytes('target triple = "`triple:string`"')
# Triton writes modules for NVIDIA GPUs without a triple.
_KERNEL = ir_line_bytes("define `words``convention:ptx_kernel|amdgpu_kernel|spir_kernel` ")
_KERNEL_TRIPLES = {
    b"ptx_kernel": NVPTX_TRIPLE,
    b"amdgpu_kernel": AMDGPU_TRIPLE,
    b"spir_kernel": SPIRV_TRIPLE,
}
_IDENTIFICATION = ir_line_bytes('!`number` = !{!"`program:string`"}')
_STRING = ir_line_bytes('@`name:name` = `words`constant [`number` x i8] c"`content:string`"')
_SECTION = b'", section ".llvm.offloading"'
_ENTRY = ir_line_bytes(
    '`global` = `words`constant `struct` { `members:members` }, section "`section:string`"'
)
_NUMBER = ir_pattern("i`number` `value:integer`")
_NAME = ir_pattern("@`name:name`")


class HostText:
    """A module in textual IR."""

    def __init__(self, view: ByteView) -> None:
        """Keep the text; it is searched on demand."""
        self._view = view
        self._text = view.whole()

    @property
    def triple(self) -> str:
        """Return the target triple; without one, that of the kernels by their convention, else an empty string."""
        found = _TRIPLE.search(self._text)
        if found is not None:
            return _decoded(found[1])
        kernel = _KERNEL.search(self._text)
        return _KERNEL_TRIPLES[kernel["convention"]] if kernel is not None else ""

    @property
    def producers(self) -> tuple[str, ...]:
        """Return the distinct producers in `llvm.ident`."""
        found = (_decoded(match[1]) for match in _IDENTIFICATION.finditer(self._text))
        return tuple(dict.fromkeys(name for name in found if " version " in name))

    def images(self, report: Report) -> Iterator[FoundImage]:
        """Yield the images of the embedded objects."""
        for match in _STRING.finditer(self._text):
            if self._text.startswith(_SECTION, match.end() - 1):
                data = unescape_bytes(match[2])
                yield from scan_binaries(memory_view(data, location=self._view.location), report)

    def entries(self) -> Iterator[HostEntry]:
        """Yield the offload entries in order; those of no known layout are skipped."""
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
    """Yield each field with its number and the string that it points to."""
    for field, text in zip(layout.fields, stored, strict=True):
        symbol = _NAME.search(text)
        string = names.get(symbol[1], b"") if symbol else b""
        yield field.name, _number(text), _decoded(unescape_bytes(string).rstrip(b"\0"))


def _number(text: str) -> int:
    found = _NUMBER.search(text)
    return int(found[1]) if found else 0


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")
