"""Find device code and its registration in objects, static libraries, and linked files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
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
from mlir_offload.offload.link.plain_object import read_plain
from mlir_offload.offload.link.runner_library import load_runner_table
from mlir_offload.offload.runtime import MEMREF_COPY
from mlir_offload.toolchain import lazy
from mlir_offload.toolchain.byte_view import ByteView, open_view
from mlir_offload.toolchain.errors import InputOutputError
from mlir_offload.toolchain.tables import LearnedRelease
from mlir_offload.toolchain.target import Kind, all_kinds, kind_of_image

if TYPE_CHECKING:
    from mlir_offload.offload.host.module_objects import ModuleObject

OFFLOAD_SECTION = ".llvm.offloading"
LINKED_SECTION = ".llvm.offloading.relocatable"
FATBIN_SECTION = ".nv_fatbin"
HIP_FATBIN_SECTION = ".hip_fatbin"
_DEVICE_PREFIXES = ("mgpu", "mlir_offload_")
_RUNTIME_PREFIXES = (*_DEVICE_PREFIXES, MEMREF_COPY)
_EMBEDDED_PREFIX = "mgpu"
_NONE: frozenset[str] = frozenset()
_BITCODE_MAGICS = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


class ObjectContents(Struct, frozen=True, dict=True):
    """The offload data of an ELF file, of a host module in LLVM IR, or of a library member.

    - `runtime_symbols`: undefined symbols of the host runtime, and symbols of an embedded runtime
    - `fatbins`: NVIDIA fat binaries, from the linker wrapper or nvcc
    - `hip_fatbins`: sections with offload bundles for AMD GPUs
    - `linked_images`: images that `clang -r --offload-link` has linked
    - `is_linked_again`: the wrapper links `linked_images` a second time
    - `is_whole`: the linker adds all members of this member's library
    - `learned`: the learned releases that the object was compiled with
    - `library_functions`: undefined functions of MLIR's runtime libraries
    - `is_bitcode`: clang compiles the file in the link
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
        """Return the file name; for a member `library(member)`, as linkers print it."""
        return f"{self.path}({self.member})" if self.member else str(self.path)

    @property
    def is_optional(self) -> bool:
        """Return whether the linker adds it only if it defines an undefined symbol."""
        return bool(self.member) and not self.is_whole

    @property
    def has_offloading(self) -> bool:
        """Return whether it contains images, entries or runtime symbols."""
        images = self.images or self.linked_images or self.fatbins or self.hip_fatbins
        return bool(images or self.entries or self.runtime_symbols)

    @property
    def calls_device(self) -> bool:
        """Return whether it calls or embeds device functions of the host runtime."""
        return any(name.startswith(_DEVICE_PREFIXES) for name in self.runtime_symbols)

    @property
    def is_device_linked(self) -> bool:
        """Return whether it is a device-linked object, which registers its own kernels."""
        return self.is_relocatable and any(entry.is_device_linked for entry in self.entries)

    @property
    def is_answerable(self) -> bool:
        """Return whether it must contain the kernels that it registers, because its device link is complete."""
        return not self.is_relocatable or self.is_device_linked

    @property
    def kinds(self) -> frozenset[str]:
        """Return the offload kinds of the images and entries."""
        packaged = {image.kind for image in self.images}
        return frozenset(packaged | {entry.kind for entry in self.entries})

    @lazy
    def registered(self) -> tuple[tuple[str, str], ...]:
        """Return the kind and name of each kernel that the next link, or this file, registers."""
        kinds = all_kinds() if self.entries else ()
        return tuple(
            [
                (one.kind, one.name)
                for one in self.entries
                if not one.size_bytes and not one.is_device_linked and one.kind in kinds
            ]
        )

    @lazy
    def device_kinds(self) -> frozenset[Kind]:
        """Return the device kinds of the images, and of entries of an offload kind without an image."""
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
    """Read an object, a library or a linked file like `read_inputs`, but return only contents with offload data."""
    return tuple(item for item in read_inputs(path) if item.has_offloading)


def read_inputs(path: Path) -> tuple[ObjectContents, ...]:
    """Read an object, a library or a linked file; the result is empty for other files.

    Objects without offload data and without calls of MLIR's runtime libraries are omitted. Raises
    InputOutputError if the file, or a member of a thin archive, cannot be read, VerificationError if it is
    corrupt.
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
    """Read a host module in LLVM IR like the object that clang compiles it to.

    Raises InputOutputError if the file cannot be read, VerificationError if it is corrupt.
    """
    with open_view(path) as view:
        if view.head(4) in _BITCODE_MAGICS:
            return tuple(_contents(view, path, ""))
        # The reader of textual IR is loaded on demand, because few links have LLVM IR inputs.
        return tuple(
            _module_contents(module_objects.read_text_object(view.whole(), str(path)), path, "")
        )


def read_member(member: ArchiveMember, path: Path) -> tuple[ObjectContents, ...]:
    """Read a member of the library `path`. The result is empty for a member that `read_inputs` omits."""
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
        contents = _read_object(view, path, name)
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


# The names, with NUL, of all sections that a link reads, except those of entries.
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


def _read_object(view: ByteView, path: Path, member: str) -> ObjectContents:
    plain = read_plain(view)
    if plain is None:
        return _read_unusual(read_elf(view), path, member)
    return ObjectContents(
        path,
        member,
        is_relocatable=True,
        images=plain.images,
        entries=plain.entries,
        runtime_symbols=_of_runtime(plain.undefined),
        fatbins=(),
        library_functions=_of_libraries(plain.undefined),
    )


def _read_unusual(elf: ElfFile, path: Path, member: str) -> ObjectContents:
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
    """Return the undefined functions of the host runtime and of MLIR's runtime libraries in an object.

    The functions of the host runtime include those that the object embeds.
    """
    undefined = tuple(elf.undefined_names())
    embedded = frozenset(
        symbol.name
        for section in elf.of_type(SectionType.SYMTAB)
        for symbol in elf.symbols_of(section, (_EMBEDDED_PREFIX.encode(),))
        if symbol.is_weak and symbol.is_hidden
    )
    return _of_runtime(undefined) | embedded, _of_libraries(undefined)


def _of_runtime(functions: Iterable[str]) -> frozenset[str]:
    return frozenset([name for name in functions if name.startswith(_RUNTIME_PREFIXES)])


def _of_libraries(functions: Iterable[str]) -> frozenset[str]:
    return frozenset(filter(_is_of_library, functions))


@cache
def _is_of_library(function: str) -> bool:
    """Return whether a library of MLIR defines a function. Cached, because many objects call the same functions."""
    return load_runner_table().any_function.fullmatch(function) is not None
