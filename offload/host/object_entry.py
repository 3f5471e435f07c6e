"""Read the offload entries of a host object, in the layout of any LLVM release."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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


def _entries(elf: ElfFile) -> Iterator[tuple[HostEntry, tuple[int, int]]]:
    learned = tuple(learned_layouts(elf)) if elf.may_have(LEARNED_SECTION) else ()
    names = _array_names(learned) if learned else _usual_names()
    for section in elf.starting(names):
        if section.type == SectionType.PROGBITS and section.size:
            arrays = (
                _arrays_named(section.name, (*learned, *entry_layouts()))
                if learned
                else _usual_arrays(section.name)
            )
            for kind, layouts in arrays:
                yield from _read_array(elf, section, kind, layouts)


def _array_names(learned: Iterable[EntryLayout]) -> tuple[bytes, ...]:
    """Return the section names of these layouts and of all in the table, without suffixes."""
    layouts = (*learned, *entry_layouts())
    return tuple({base.encode() for layout in layouts for _, base in layout.sections})


@table_cache
def _usual_names() -> tuple[bytes, ...]:
    return _array_names(())


@table_cache
def _usual_arrays(name: str) -> tuple[tuple[str, list[EntryLayout]], ...]:
    return tuple(_arrays_named(name, entry_layouts()))


def learned_layouts(elf: ElfFile) -> Iterator[EntryLayout]:
    """Yield the entry layouts of unknown releases, which the object itself describes."""
    for release in read_learned(elf, elf.view.location):
        for row in release.rows:
            if isinstance(row, learned_row.EntriesRow):
                yield entry_layout(to_builtins(row))


def _arrays_named(
    name: str, known: Iterable[EntryLayout]
) -> Iterator[tuple[str, list[EntryLayout]]]:
    """Yield the kind of a section, by its name (empty: each entry has its kind), and its layouts.

    `clang -r --offload-link` adds a suffix to the name, so that no later link registers the entries again.
    """
    kind = ""
    layouts = []
    for layout in known:
        for own_kind, base in layout.sections:
            if name == base or name.startswith(f"{base}_"):
                kind = "" if len({other for _, other in layout.sections}) == 1 else own_kind
                layouts.append(layout)
                break
    if layouts:
        yield kind, layouts


def _read_array(
    elf: ElfFile, section: ElfSection, kind: str, layouts: list[EntryLayout]
) -> Iterator[tuple[HostEntry, tuple[int, int]]]:
    content = elf.content(section, form="offload entries")
    pointers = elf.pointers(section)
    is_device_linked = all(section.name not in item.section_names for item in layouts)
    # Entries of 9 fields begin with a zero, those of 5 with an address.
    starts_with_address = 0 in pointers or content.head(8) != bytes(8)
    layout = next(
        (item for item in layouts if (item.fields[0].name == "address") == starts_with_address),
        layouts[0],
    )
    members, numbers = layout.members, layout.numbers
    rows = content.table(members, 0, content.size // members.size, "entries")
    for start, row in zip(range(0, content.size, members.size), rows, strict=False):
        values = (*row, 0)
        named_at = start + layout.name_at
        name = elf.text_of(pointers.get(named_at) or (-1, values[numbers["name"]]))
        if not name:
            continue
        entry = HostEntry(
            kind or kind_name(values[numbers["kind"]]),
            name,
            values[numbers["size"]],
            values[numbers["flags"]],
            values[numbers["data"]],
            section.name,
            len(layout.fields),
            is_device_linked,
        )
        address = pointers.get(start + layout.address_at) or (-1, values[numbers["address"]])
        yield entry, address
