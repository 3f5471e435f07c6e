"""Read the offload entries of a host object, in the layout of any LLVM release."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, to_builtins

from mlir_offload.offload.abi import EntryLayout, entry_layout, entry_layouts, kind_name
from mlir_offload.offload.elf import ElfFile, ElfSection, SectionType
from mlir_offload.offload.learned_section import LEARNED_SECTION, read_learned
from mlir_offload.toolchain import learned_row
from mlir_offload.toolchain.tables import table_cache


class HostEntry(Struct, frozen=True):
    """An offload entry: the kind that it is registered for, the device symbol, its size (0: a kernel).

    `fields` is the number of fields of its layout: 5 up to LLVM 19, 9 from LLVM 20 on. It is device-linked if
    `clang -r --offload-link` has linked its device code.
    """

    kind: str
    name: str
    size_bytes: int
    flags: int = 0
    data: int = 0
    section: str = ""
    fields: int = 0
    is_device_linked: bool = False

    @property
    def is_kernel(self) -> bool:
        """Return whether the entry registers a kernel, not a variable."""
        return self.size_bytes == 0


def read_entries(elf: ElfFile) -> tuple[HostEntry, ...]:
    """Return the entries of every array in an object or a linked file, in order.

    Raises VerificationError if an array is corrupt.
    """
    return tuple([entry for entry, _ in _entries(elf)])


def kernel_addresses(elf: ElfFile) -> Iterator[tuple[str, str, tuple[int, int]]]:
    """Yield the kind, name and address of each registered kernel. Raises as `read_entries`.

    The address is in the format of `ElfFile.pointers`.
    """
    for entry, address in _entries(elf):
        if entry.is_kernel:
            yield entry.kind, entry.name, address


class _Array(Struct, frozen=True):
    """How an array of entries is read: the kind (empty: each entry has its own), and the layout.

    `layouts` are the layout of entries that begin with a zero, and of those that begin with an address.
    """

    kind: str
    is_device_linked: bool
    layouts: tuple[EntryLayout, EntryLayout]


def _entries(elf: ElfFile) -> Iterator[tuple[HostEntry, tuple[int, int]]]:
    learned = tuple(learned_layouts(elf)) if elf.may_have(LEARNED_SECTION) else ()
    for section in elf.starting(array_names(learned)):
        if section.type == SectionType.PROGBITS and section.size:
            array = array_named(section.name, learned)
            if array is not None:
                yield from _read_array(elf, section, array)


@table_cache
def array_names(learned: tuple[EntryLayout, ...]) -> tuple[bytes, ...]:
    """Return the section names of these layouts and of all in the table, without suffixes."""
    layouts = (*learned, *entry_layouts())
    return tuple({base.encode() for layout in layouts for _, base in layout.sections})


def learned_layouts(elf: ElfFile) -> Iterator[EntryLayout]:
    """Yield the entry layouts of unknown releases, which the object itself describes."""
    for release in read_learned(elf, elf.view.location):
        for row in release.rows:
            if isinstance(row, learned_row.EntriesRow):
                yield entry_layout(to_builtins(row))


@table_cache
def array_named(name: str, learned: tuple[EntryLayout, ...]) -> _Array | None:
    """Return how the array in a section of this name is read; None if it contains no entries.

    `clang -r --offload-link` adds a suffix to the name, so that no later link registers the entries again.
    """
    kind = ""
    layouts = []
    for layout in (*learned, *entry_layouts()):
        for own_kind, base in layout.sections:
            if name == base or name.startswith(f"{base}_"):
                kind = "" if len({other for _, other in layout.sections}) == 1 else own_kind
                layouts.append(layout)
                break
    if not layouts:
        return None
    zero, address = (
        next((one for one in layouts if (one.fields[0].name == "address") == begins), layouts[0])
        for begins in (False, True)
    )
    is_device_linked = all(name not in one.section_names for one in layouts)
    return _Array(kind, is_device_linked, (zero, address))


def _read_array(
    elf: ElfFile, section: ElfSection, array: _Array
) -> Iterator[tuple[HostEntry, tuple[int, int]]]:
    content = elf.content(section, form="offload entries")
    pointers = elf.pointers(section)
    # Entries of 9 fields begin with a zero, those of 5 with an address.
    layout = array.layouts[0 in pointers or content.head(8) != bytes(8)]
    members, numbers = layout.members, layout.numbers
    rows = content.table(members, 0, content.size // members.size, "entries")
    for start, row in zip(range(0, content.size, members.size), rows, strict=False):
        values = (*row, 0)
        name = elf.text_of(pointers.get(start + layout.name_at) or (-1, values[numbers["name"]]))
        if not name:
            continue
        entry = HostEntry(
            array.kind or kind_name(values[numbers["kind"]]),
            name,
            values[numbers["size"]],
            values[numbers["flags"]],
            values[numbers["data"]],
            section.name,
            len(layout.fields),
            array.is_device_linked,
        )
        address = pointers.get(start + layout.address_at) or (-1, values[numbers["address"]])
        yield entry, address
