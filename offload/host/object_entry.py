"""Read the offload entries of a host object, in the layout of any LLVM release."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, to_builtins

from mlir_offload.offload.abi import EntryLayout, entry_layout, entry_layouts, kind_name
from mlir_offload.offload.elf import ElfFile, ElfSection, SectionType
from mlir_offload.offload.learned_section import read_learned
from mlir_offload.toolchain.learned_row import EntriesRow


class HostEntry(Struct, frozen=True):
    """A host entry: the kind it is registered for, the device symbol, its size (0: a kernel).

    `fields` is the number of members of its layout: 5 up to LLVM 19, 9 from 20. It is device-linked
    where `clang -r --offload-link` has linked its device code already.
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
        """Return whether the entry represents a kernel, not a variable."""
        return self.size_bytes == 0


def read_entries(elf: ElfFile) -> tuple[HostEntry, ...]:
    """Return the entries of every array in an object or a linked file, in their order.

    Raises VerificationError where an array is damaged.
    """
    known = (*learned_layouts(elf), *entry_layouts())
    names = tuple({base for layout in known for _, base in layout.sections})
    return tuple(
        entry
        for section in elf.sections
        if section.name.startswith(names) and section.type == SectionType.PROGBITS and section.size
        for kind, layouts in _arrays_named(section.name, known)
        for entry in _read_array(elf, section, kind, layouts)
    )


def learned_layouts(elf: ElfFile) -> Iterator[EntryLayout]:
    """Yield the layouts of releases that no table knows, as the object itself tells them."""
    for release in read_learned(elf, elf.view.location):
        for row in release.rows:
            if isinstance(row, EntriesRow):
                yield entry_layout(to_builtins(row))


def _arrays_named(
    name: str, known: Iterable[EntryLayout]
) -> Iterator[tuple[str, list[EntryLayout]]]:
    """Return the kind that a section's name tells (empty: each entry tells) and its layouts.

    `clang -r --offload-link` adds a suffix to the name, so that no second link registers again.
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
) -> Iterator[HostEntry]:
    content = elf.content(section, form="offload entries")
    pointers = elf.pointers(section)
    is_device_linked = section.name not in {base for item in layouts for _, base in item.sections}
    # Entries of 9 members start with a zero, those of 5 with an address.
    starts_with_address = 0 in pointers or content.head(8) != bytes(8)
    layout = next(
        (item for item in layouts if (item.fields[0].name == "address") == starts_with_address),
        layouts[0],
    )
    for start in range(0, content.size - layout.size_bytes + 1, layout.size_bytes):
        raw = content.read(start, layout.size_bytes, "entry")
        place = layout.offset_of("name")
        name = elf.text_of(pointers.get(start + place, (-1, _number(raw, layout, "name"))))
        if not name:
            continue
        yield HostEntry(
            kind=kind or kind_name(_number(raw, layout, "kind")),
            name=name,
            size_bytes=_number(raw, layout, "size"),
            flags=_number(raw, layout, "flags"),
            data=_number(raw, layout, "data"),
            section=section.name,
            fields=len(layout.fields),
            is_device_linked=is_device_linked,
        )


def _number(raw: bytes, layout: EntryLayout, name: str) -> int:
    member = layout.field(name)
    if member is None:
        return 0
    return int.from_bytes(raw[member.offset : member.offset + member.size_bytes], "little")
