"""Duplicate kernel names in the objects of a link; a common device link would keep only one kernel."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.elf import ElfFile, SectionType, read_elf
from mlir_offload.offload.host import embed, mangling
from mlir_offload.offload.image import is_bitcode
from mlir_offload.offload.kind_format import format_of
from mlir_offload.offload.link.objects import LINKED_SECTION
from mlir_offload.toolchain.bitcode import module as bitcode_module
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from mlir_offload.offload.abi import OffloadAbi
    from mlir_offload.offload.link.objects import ObjectContents
    from mlir_offload.toolchain.byte_view import ByteView

_PUBLIC_PREFIX = "__device_stub__"
# Elf64_Ehdr.e_shoff, Elf64_Shdr.sh_type, Elf64_Sym.st_info.
_SECTION_TABLE = 40
_SECTION_BYTES, _SECTION_TYPE = 64, 4
_SYMBOL_BYTES, _SYMBOL_INFO = 24, 4
_GLOBAL, _WEAK = 1, 2


class KernelStubs(Struct, frozen=True):
    """The kernel stubs in the symbols of an object.

    `own` are the kernels with a local stub of mlir-offload. `defined` are the public stubs that the object
    defines, `launched` those that another file must define. `undefined` are all undefined symbols, including
    kernel handles, which have the name of the kernel.
    """

    own: frozenset[str]
    defined: frozenset[str]
    launched: frozenset[str]
    undefined: frozenset[str] = frozenset()

    def launches(self, kernel: str, kind: str) -> bool:
        """Return whether the object launches a kernel that another file must define."""
        by_handle = format_of(kind).is_launched_by_handle and kernel in self.undefined
        return by_handle or mangling.stub_symbol(kernel) in self.launched


class LinkInput(Struct, frozen=True):
    """An object in a link: its contents, its file, and its position in the file if it is a member."""

    contents: ObjectContents
    file: Path
    stubs: KernelStubs
    ordinal: int = 0


class Collision(Struct, frozen=True):
    """A kernel of one kind that several objects define, given by their indices in the link line."""

    kind: str
    kernel: str
    objects: tuple[int, ...]


def find_collisions(objects: Sequence[ObjectContents]) -> tuple[Collision, ...]:
    """Return the kernels for which several objects contain device code."""
    definers: dict[tuple[str, str], dict[int, None]] = {}
    for number, item in enumerate(objects):
        for entry in item.entries if item.is_relocatable else ():
            if entry.is_kernel and not entry.is_device_linked:
                definers.setdefault((entry.kind, entry.name), {})[number] = None
    return tuple(
        Collision(kind, kernel, tuple(numbers))
        for (kind, kernel), numbers in definers.items()
        if len(numbers) > 1
    )


def objects_to_detach(objects: Sequence[ObjectContents]) -> tuple[ObjectContents, ...]:
    """Return the device-linked objects and members that would affect other objects in a link.

    `clang -r --offload-link` leaves the public stubs of their kernels global, and leaves images for the CPU
    in a section that the wrapper links again.
    """
    named: dict[tuple[str, str], set[str]] = {}
    for item in objects:
        for entry in item.entries if item.is_relocatable else ():
            if entry.is_kernel:
                named.setdefault((entry.kind, entry.name), set()).add(item.location)
    return tuple(
        item
        for item in objects
        if item.is_linked_again
        or (
            item.is_device_linked
            and not item.member
            and any(
                len(named[entry.kind, entry.name]) > 1 for entry in item.entries if entry.is_kernel
            )
        )
    )


def objects_to_finish(
    collisions: Iterable[Collision], inputs: Sequence[LinkInput]
) -> dict[int, Collision]:
    """Return the objects that must be device-linked separately, each with a collision as the reason.

    Of the objects that define a kernel, one remains in the common link: preferably one of another compiler,
    which may call device functions of other files, otherwise an object before a library member. Kernels that
    no object of mlir-offload defines are subject to the one-definition rule of C++.
    """
    chosen: dict[int, Collision] = {}
    for collision in collisions:
        own = {n for n in collision.objects if collision.kernel in inputs[n].stubs.own}
        left = [number for number in collision.objects if number not in chosen]
        left.sort(key=lambda n: (n in own, bool(inputs[n].contents.member), n))
        chosen |= {number: collision for number in left[1:] if number in own}
    return chosen


def check_kinds(
    collisions: Iterable[Collision], objects: Sequence[ObjectContents], abi: OffloadAbi
) -> None:
    """Raise SourceError if the release cannot device-link one object separately."""
    for collision in collisions:
        if collision.kind in abi.relocatable_link_without:
            first, second = (objects[number].location for number in collision.objects[:2])
            msg = (
                f"kernel '{collision.kernel}' is defined here and in {second}; LLVM {abi.major} "
                f"cannot tell two kernels of the same name apart for kind {collision.kind}"
            )
            raise SourceError(msg, hint="rename one of the kernels", location=first)


def check_targets(collisions: Iterable[Collision], objects: Sequence[ObjectContents]) -> None:
    """Raise SourceError if kernels of the same name are compiled for different architectures.

    The verification of the linked file could not determine whose kernel an architecture lacks.
    """
    for collision in collisions:
        first, *others = (objects[number] for number in collision.objects)
        ours = _targets(first, collision.kind)
        for other in others:
            theirs = _targets(other, collision.kind)
            if ours != theirs:
                msg = (
                    f"kernel '{collision.kernel}' is made for {', '.join(ours)} here, and for "
                    f"{', '.join(theirs)} in {other.location}"
                )
                hint = "compile both files with the same --offload-arch="
                raise SourceError(msg, hint=hint, location=first.location)


def check_launches(collisions: Iterable[Collision], inputs: Sequence[LinkInput]) -> None:
    """Raise SourceError if a file launches a kernel that several other files define.

    Objects of other compilers do not count, because their strong stub takes precedence.
    """
    for collision in collisions:
        public = mangling.stub_symbol(collision.kernel)
        definers = [inputs[n] for n in collision.objects if public in inputs[n].stubs.defined]
        own = [item for item in definers if collision.kernel in item.stubs.own]
        kernel, kind = collision.kernel, collision.kind
        caller = next((item for item in inputs if item.stubs.launches(kernel, kind)), None)
        if caller is not None and len(own) > 1 and len(own) == len(definers):
            places = " and by ".join(item.contents.location for item in own[:2])
            msg = f"kernel '{collision.kernel}' is launched here, and defined by {places}"
            hint = "rename one of the kernels: the launch is ambiguous"
            raise SourceError(msg, hint=hint, location=caller.contents.location)


def read_stubs(view: ByteView) -> KernelStubs:
    """Return the kernel stubs of an object, or of a host module in bitcode.

    Raises SourceError if it is corrupt.
    """
    own, defined, undefined = set[str](), set[str](), set[str]()
    symbols = _module_symbols(view) if is_bitcode(view.head(4)) else _elf_symbols(view)
    for name, is_global, is_undefined in symbols:
        if not is_global:
            if name.startswith(embed.LOCAL_STUB_PREFIX):
                own.add(name.removeprefix(embed.LOCAL_STUB_PREFIX))
        elif is_undefined:
            undefined.add(name)
        elif _PUBLIC_PREFIX in name:
            defined.add(name)
    launched = frozenset(name for name in undefined if _PUBLIC_PREFIX in name)
    return KernelStubs(frozenset(own), frozenset(defined), launched, frozenset(undefined))


def _elf_symbols(view: ByteView) -> Iterator[tuple[str, bool, bool]]:
    for symbol in read_elf(view).symbols(".symtab"):
        yield symbol.name, symbol.is_global, symbol.is_undefined


def _module_symbols(view: ByteView) -> Iterator[tuple[str, bool, bool]]:

    for module in bitcode_module.read_bitcode_modules(view):
        for symbol in module.symbols:
            is_global = symbol.linkage not in {"internal", "private"}
            is_open = getattr(symbol, "is_declaration", False) or (
                getattr(symbol, "initializer", 0) is None
            )
            yield symbol.name, is_global, is_open


def detach_object(data: bytes, *, location: str = "") -> bytes:
    """Return an object of `clang -r --offload-link`, changed so that it does not affect other objects.

    Its device images get a section type that a later run of the wrapper ignores; otherwise the wrapper would
    link the other CPU images with them. The public stubs of its kernels become weak, so that other objects
    may have kernels of the same names.
    """
    elf = read_elf(memory_view(data, location=location))
    result = bytearray(data)
    (table,) = struct.unpack_from("<Q", data, _SECTION_TABLE)
    for section in elf.named(LINKED_SECTION):
        place = table + section.number * _SECTION_BYTES + _SECTION_TYPE
        struct.pack_into("<I", result, place, SectionType.PROGBITS)
    for place, info in _public_stubs(elf):
        result[place] = _WEAK << 4 | info & 0xF
    return bytes(result)


def _public_stubs(elf: ElfFile) -> Iterator[tuple[int, int]]:
    """Yield the offset and value of `st_info` of the public stubs and handles of mlir-offload."""
    tables = [(section, tuple(elf.symbols_of(section))) for section in elf.named(".symtab")]
    local = [symbol.name for _, symbols in tables for symbol in symbols if not symbol.is_global]
    own = {
        *(mangling.stub_symbol(name) for name in _kernels_with(embed.LOCAL_STUB_PREFIX, local)),
        *_kernels_with(embed.LOCAL_HANDLE_PREFIX, local),
    }
    for section, symbols in tables:
        for index, symbol in enumerate(symbols):
            if symbol.name in own and symbol.info >> 4 == _GLOBAL and not symbol.is_undefined:
                yield section.offset + index * _SYMBOL_BYTES + _SYMBOL_INFO, symbol.info


def _kernels_with(prefix: str, symbols: Iterable[str]) -> Iterator[str]:
    return (name.removeprefix(prefix) for name in symbols if name.startswith(prefix))


def _targets(item: ObjectContents, kind: str) -> tuple[str, ...]:
    archs = {image.arch or "host" for image in item.images if image.kind == kind}
    return tuple(sorted(archs)) or ("no device",)
