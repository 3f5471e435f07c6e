"""Read the offload data in a host module in bitcode: embedded images, entries, producer."""

from __future__ import annotations

from collections.abc import Iterator

from mlir_offload.offload.abi import EntryLayout
from mlir_offload.offload.container.scan import FoundImage, Report, scan_binaries
from mlir_offload.offload.host.bitcode import BitcodeEntry, embedded_objects, offload_entries
from mlir_offload.offload.host.entry import elf_name_of, entry_of, layout_of
from mlir_offload.offload.host.object_entry import HostEntry
from mlir_offload.toolchain.bitcode.constant import ConstantTable
from mlir_offload.toolchain.bitcode.module import BitcodeModule, read_bitcode_modules
from mlir_offload.toolchain.byte_view import ByteView, memory_view


class HostBitcode:
    """A module of a bitcode file, with its constants located once."""

    def __init__(self, module: BitcodeModule, location: str) -> None:
        """Find the constants. Raises VerificationError if they are malformed."""
        self._module = module
        self._constants = ConstantTable(module)
        self._location = location

    @property
    def triple(self) -> str:
        """Return the target triple; empty if there is none."""
        return self._module.triple

    @property
    def producers(self) -> tuple[str, ...]:
        """Return the producer that the bitcode names."""
        return (self._module.producer,) if self._module.producer else ()

    def images(self, report: Report) -> Iterator[FoundImage]:
        """Yield the images of the embedded objects, each decoded when it is reached."""
        for embedded in embedded_objects(self._module, self._constants):
            yield from scan_binaries(memory_view(embedded.data, location=self._location), report)

    def entries(self) -> Iterator[HostEntry]:
        """Yield the offload entries in order; those of no known layout are skipped."""
        for entry in offload_entries(self._module, self._constants):
            section = elf_name_of(entry.section)
            layout = layout_of(section, len(entry.members))
            if layout is not None:
                yield entry_of(layout, section, _members(layout, entry))


def read_host_bitcode(view: ByteView) -> tuple[HostBitcode, ...]:
    """Return the modules of a bitcode file. Raises VerificationError if it is malformed."""
    return tuple(HostBitcode(module, view.location) for module in read_bitcode_modules(view))


def _members(layout: EntryLayout, entry: BitcodeEntry) -> Iterator[tuple[str, int, str]]:
    for field, member in zip(layout.fields, entry.members, strict=True):
        yield field.name, member.number or 0, member.string or ""
