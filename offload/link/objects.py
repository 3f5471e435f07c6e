"""Find device code and its registration in objects, static libraries, and linked files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.container.archive import ArchiveMember, is_archive, iterate_members
from mlir_offload.offload.container.binary import PackagedImage
from mlir_offload.offload.container.offload_section import read_section
from mlir_offload.offload.elf import ELF_MAGIC, ElfFile, ElfSection, SectionType, read_elf
from mlir_offload.offload.host import module_objects
from mlir_offload.offload.host.object_entry import HostEntry, read_entries
from mlir_offload.offload.learned_section import LEARNED_SECTION, read_learned
from mlir_offload.offload.link.runner_library import load_runner_table
from mlir_offload.offload.runtime import MEMREF_COPY
from mlir_offload.toolchain.byte_view import ByteView, open_view
from mlir_offload.toolchain.errors import InputOutputError
from mlir_offload.toolchain.tables import LearnedRelease
from mlir_offload.toolchain.target import Kind, kind_of_image

if TYPE_CHECKING:
    from mlir_offload.offload.host.module_objects import ModuleObject

OFFLOAD_SECTION = ".llvm.offloading"
LINKED_SECTION = ".llvm.offloading.relocatable"
FATBIN_SECTION = ".nv_fatbin"
HIP_FATBIN_SECTION = ".hip_fatbin"
_DEVICE_PREFIXES = ("mgpu", "mlir_offload_")
_RUNTIME_PREFIXES = (*_DEVICE_PREFIXES, MEMREF_COPY)
_EMBEDDED_PREFIX = "mgpu"
_RUNTIME_BYTES = tuple(prefix.encode() for prefix in _RUNTIME_PREFIXES)
_NONE: frozenset[str] = frozenset()
_BITCODE_MAGICS = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


class ObjectContents(Struct, frozen=True, dict=True):
    """What one ELF file or host module in LLVM IR, or one member of a library, holds of offloading.

    `runtime_symbols` are those that an object leaves to the host runtime, and those of a runtime that
    it embeds; `fatbins` are NVIDIA's,
    which the linker wrapper or nvcc put there, `hip_fatbins` the sections of bundles for AMD GPUs;
    `linked_images` are those that `clang -r --offload-link` has linked already; it `is_linked_again` where
    the wrapper takes them for images that are not linked yet. A member `is_whole` where the linker takes
    the library as a whole; `learned` are the rows that it was compiled by, `library_functions` those of
    MLIR's libraries that it leaves to others. It `is_bitcode` if clang has yet to compile the file.
    """

    path: Path
    member: str
    is_relocatable: bool
    images: tuple[PackagedImage, ...]
    entries: tuple[HostEntry, ...]
    runtime_symbols: frozenset[str]
    fatbins: tuple[ByteView, ...]
    linked_images: tuple[PackagedImage, ...] = ()
    hip_fatbins: tuple[ByteView, ...] = ()
    is_whole: bool = False
    learned: tuple[LearnedRelease, ...] = ()
    library_functions: frozenset[str] = frozenset()
    is_bitcode: bool = False
    is_linked_again: bool = False

    @property
    def location(self) -> str:
        """Return the file, with the member in brackets as linkers print it."""
        return f"{self.path}({self.member})" if self.member else str(self.path)

    @property
    def is_optional(self) -> bool:
        """Return whether the linker takes it only if something needs it."""
        return bool(self.member) and not self.is_whole

    @property
    def has_offloading(self) -> bool:
        """Return whether there is anything of offloading in it."""
        images = self.images or self.linked_images or self.fatbins or self.hip_fatbins
        return bool(images or self.entries or self.runtime_symbols)

    @property
    def calls_device(self) -> bool:
        """Return whether it calls the runtime for a device."""
        return any(name.startswith(_DEVICE_PREFIXES) for name in self.runtime_symbols)

    @property
    def is_device_linked(self) -> bool:
        """Return whether it is an object whose device code is linked, and registers its kernels."""
        return self.is_relocatable and any(entry.is_device_linked for entry in self.entries)

    @property
    def is_answerable(self) -> bool:
        """Return whether it has to hold the kernels that it registers: those of a link that is done."""
        return not self.is_relocatable or self.is_device_linked

    @property
    def kinds(self) -> frozenset[str]:
        """Return the offload kinds of the images and of the entries."""
        packaged = {image.kind for image in self.images}
        return frozenset(packaged | {entry.kind for entry in self.entries})

    @cached_property
    def device_kinds(self) -> frozenset[Kind]:
        """Return the device kinds of the images and of the entries; images tell more than entries."""
        packaged = {kind_of_image(image.kind, image.triple) for image in self.images}
        told = {image.kind for image in self.images}
        registered = {
            kind_of_image(entry.kind, "") for entry in self.entries if entry.kind not in told
        }
        return frozenset(kind for kind in packaged | registered if kind is not None)

    def kernels(self, kind: str) -> tuple[str, ...]:
        """Return the kernels registered for a kind."""
        return tuple(entry.name for entry in self.entries if entry.kind == kind and entry.is_kernel)


def read_objects(path: Path) -> tuple[ObjectContents, ...]:
    """Read an object, a library or a linked file, as `read_inputs`, but only what has offloading in it."""
    return tuple(item for item in read_inputs(path) if item.has_offloading)


def read_inputs(path: Path) -> tuple[ObjectContents, ...]:
    """Read an object, a library or a linked file; another kind of file yields nothing.

    What has no offloading in it and calls nothing of MLIR's libraries is left out. Raises InputOutputError where the file, or one that
    a thin archive names, cannot be read, VerificationError where it is damaged.
    """
    with open_view(path) as view:
        if is_archive(view):
            return tuple(
                contents
                for member in iterate_members(view)
                for contents in read_member(member, path)
            )
        return tuple(_contents(view, path, ""))


def read_module(path: Path) -> tuple[ObjectContents, ...]:
    """Read a host module in LLVM IR, as the object that clang makes of it; text has no entries yet.

    Raises InputOutputError where the file cannot be read, VerificationError where it is damaged.
    """
    with open_view(path) as view:
        if view.head(4) in _BITCODE_MAGICS:
            return tuple(_contents(view, path, ""))
        # Few links have LLVM IR among their inputs: what reads it is loaded for those.

        return tuple(
            _module_contents(module_objects.read_text_object(view.whole(), str(path)), path, "")
        )


def read_member(member: ArchiveMember, path: Path) -> tuple[ObjectContents, ...]:
    """Read a member of the library `path`; one that `read_inputs` leaves out yields nothing."""
    if member.content is not None:
        return tuple(_contents(member.content, path, member.name))
    if member.file is None:
        return ()
    try:
        with open_view(member.file) as view:
            return tuple(_contents(view, path, member.name))
    except InputOutputError as error:
        error.location = error.location or str(path)
        raise


def _contents(view: ByteView, path: Path, name: str) -> Iterator[ObjectContents]:
    head = view.head(4)
    if head == ELF_MAGIC:
        contents = _read_object(read_elf(view), path, name)
        if contents.has_offloading or contents.library_functions:
            yield contents
    elif head in _BITCODE_MAGICS:
        yield from _module_contents(module_objects.read_bitcode_object(view), path, name)


def _module_contents(
    module: ModuleObject | None, path: Path, name: str
) -> Iterator[ObjectContents]:
    if module is None:
        return
    contents = ObjectContents(
        path=path,
        member=name,
        is_relocatable=True,
        images=module.images,
        entries=module.entries,
        runtime_symbols=frozenset(
            function for function in module.functions if function.startswith(_RUNTIME_PREFIXES)
        ),
        fatbins=(),
        is_bitcode=not name,
    )
    if contents.has_offloading:
        yield contents


# All sections that a link looks for but for those of entries, each with the NUL behind its name.
_LOOKED_FOR = tuple(
    f"{name}\0".encode()
    for name in (
        OFFLOAD_SECTION,
        LINKED_SECTION,
        FATBIN_SECTION,
        HIP_FATBIN_SECTION,
        LEARNED_SECTION,
    )
)


def _read_object(elf: ElfFile, path: Path, member: str) -> ObjectContents:
    sections: defaultdict[str, list[ElfSection]] = defaultdict(list)
    for section in elf.starting(_LOOKED_FOR):
        sections[section.name].append(section)
    entries = read_entries(elf)
    runtime, library = _called(elf) if elf.is_relocatable else (_NONE, _NONE)
    return ObjectContents(
        path=path,
        member=member,
        is_relocatable=elf.is_relocatable,
        images=_images(elf, sections[OFFLOAD_SECTION]),
        entries=entries,
        runtime_symbols=runtime,
        fatbins=tuple(map(elf.content, sections[FATBIN_SECTION])),
        linked_images=_images(elf, sections[LINKED_SECTION]),
        hip_fatbins=tuple(map(elf.content, sections[HIP_FATBIN_SECTION])),
        learned=read_learned(elf, str(path)) if sections[LEARNED_SECTION] else (),
        library_functions=library,
        is_linked_again=elf.is_relocatable
        and any(one.type == SectionType.LLVM_OFFLOADING for one in sections[LINKED_SECTION]),
    )


def _images(elf: ElfFile, sections: Iterable[ElfSection]) -> tuple[PackagedImage, ...]:
    return tuple([image for one in sections for image in read_section(elf.content(one))])


def _called(elf: ElfFile) -> tuple[frozenset[str], frozenset[str]]:
    """Return the functions of the host runtime, and of MLIR's libraries, that an object leaves to others.

    Of the host runtime those too that it embeds.
    """
    runtime: set[str] = set()
    library: set[str] = set()
    table = load_runner_table()
    for section in elf.of_type(SectionType.SYMTAB):
        names = elf.strings(section.link)
        if names is None:
            continue
        data = names.data
        # Most objects call nothing of either: their symbols are not even looked at.
        prefixes = tuple([prefix for prefix in _RUNTIME_BYTES if prefix in data])
        for symbol in elf.symbols_of(section, prefixes) if prefixes else ():
            is_embedded = symbol.is_weak and symbol.is_hidden
            if symbol.is_undefined or (is_embedded and symbol.name.startswith(_EMBEDDED_PREFIX)):
                runtime.add(symbol.name)
        if table.may_name(data) and table.any_function.search(data):
            library.update(
                symbol.name
                for symbol in elf.symbols_of(section)
                if symbol.is_undefined and symbol.is_global and table.library_of(symbol.name)
            )
    return frozenset(runtime), frozenset(library)
