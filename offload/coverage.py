"""Check a link: every kernel that the host registers is in the device image of every architecture."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from mlir_offload.offload.elf import read_elf
from mlir_offload.offload.fatbin import cubin_kernels, read_fatbins
from mlir_offload.offload.image import ImageKind
from mlir_offload.offload.objects import ObjectContents, read_objects
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import CompatibilityError, VerificationError
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from mlir_offload.offload.abi import OffloadAbi

_CPP_MANGLING = "_Z"
_SHOWN = 8


@dataclass(frozen=True, slots=True, order=True)
class KernelImage:
    """A kernel in the image of one kind and architecture (empty for the CPU)."""

    kind: str
    arch: str
    kernel: str

    def __str__(self) -> str:
        """Return the kernel with the target as `--offload-arch=` spells it."""
        return f"'{self.kernel}' for {self.arch or 'host'}"


@dataclass(frozen=True, slots=True)
class ExpectedKernels:
    """What a link must yield: kernels per kind, and the architectures of each kind.

    Those of library members count if the linker takes the members.
    """

    kernels: frozenset[tuple[str, str]]
    archs: frozenset[tuple[str, str]]
    member_archs: frozenset[tuple[str, str]] = frozenset()


def expected_kernels(inputs: Iterable[ObjectContents]) -> ExpectedKernels:
    """Return what the files on a link line ask for.

    Shared libraries and objects whose device code is linked already answer for themselves.
    """
    contents = [item for item in inputs if item.is_relocatable]
    objects = [item for item in contents if not item.member]
    members = [item for item in contents if item.member]
    return ExpectedKernels(
        frozenset(pair for item in objects for pair in _registered(item)),
        frozenset((image.kind, image.arch) for item in objects for image in item.images),
        frozenset((image.kind, image.arch) for item in members for image in item.images),
    )


def missing_kernels(linked: Path, expected: ExpectedKernels) -> tuple[KernelImage, ...]:
    """Return each kernel that a linked file registers, or was to, and that an image of it lacks.

    Raises VerificationError where the file holds device images that cannot be read.
    """
    contents = read_objects(linked)
    kernels = expected.kernels | {pair for item in contents for pair in _registered(item)}
    held = frozenset(pair for item in contents for pair in held_kernels(item))
    found = frozenset((pair.kind, pair.arch) for pair in held)
    taken = expected.archs | (expected.member_archs & found)
    kinds = (Kind.CUDA.value, Kind.OPENMP.value)
    wanted = (
        KernelImage(kind, arch, kernel)
        for kind, kernel in kernels
        if kind in kinds
        for arch in _first_archs(kind, (taken, expected.member_archs, found))
    )
    return tuple(sorted(pair for pair in wanted if pair not in held))


def check_coverage(linked: Path, inputs: Sequence[ObjectContents]) -> None:
    """Raise VerificationError where a device image lacks a kernel; it names them, and the cure."""
    missing = missing_kernels(linked, expected_kernels(inputs))
    if not missing:
        return
    listed = ", ".join(str(pair) for pair in missing[:_SHOWN])
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    msg = f"the device images lack kernels that the host registers: {listed}{more}"
    raise VerificationError(msg, hint=_cure(missing, inputs), location=str(linked))


def check_entry_layout(inputs: Iterable[ObjectContents], abi: OffloadAbi) -> None:
    """Raise CompatibilityError for an object whose kernels this release would not register.

    Its linker wrapper would link such an object in silence.
    """
    sections, members = {name for _, name in abi.entry.sections}, len(abi.entry.fields)
    for item in inputs:
        if not item.is_relocatable or not item.images:
            continue
        arrays = dict.fromkeys((entry.section, entry.fields) for entry in item.entries)
        misread = [name for name, fields in arrays if name in sections and fields != members]
        # An object for any release has an array more, which this release does not look for.
        if arrays and not any(name in sections for name, _ in arrays):
            misread = [name for name, _ in arrays]
        if misread:
            msg = (
                f"its kernels are registered in {misread[0]}, which LLVM {abi.major} does not read"
            )
            hint = f"compile it again with LLVM {abi.major}, or link with the release that made it"
            raise CompatibilityError(msg, hint=hint, location=item.location)


def check_duplicates(inputs: Iterable[ObjectContents]) -> None:
    """Raise VerificationError where two objects define one kernel differently for one architecture.

    The device link would keep the first one in silence. Kernels with C++ names are left to the
    one-definition rule.
    """
    objects = [item for item in inputs if item.is_relocatable and not item.member]
    for first, second in combinations(objects, 2):
        for kind in sorted(first.kinds & second.kinds):
            shared = set(first.kernels(kind)) & set(second.kernels(kind))
            for kernel in sorted(name for name in shared if not name.startswith(_CPP_MANGLING)):
                _check_same(kernel, kind, first, second)


def held_kernels(item: ObjectContents) -> frozenset[KernelImage]:
    """Return the kernels that the finished images in a file hold; bitcode is not looked into."""
    pairs = [
        KernelImage(Kind.CUDA.value, image.arch, kernel)
        for fatbin in item.fatbins
        for image in read_fatbins(fatbin)
        if image.kind == "elf"
        for kernel in cubin_kernels(image.content.whole(), location=item.location)
    ]
    pairs += [
        KernelImage(image.kind, image.arch, kernel)
        for image in (*item.images, *item.finished_images)
        if image.image_kind in (ImageKind.OBJECT, ImageKind.CUBIN)
        for kernel in _image_kernels(image.kind, image.data, item.location)
    ]
    return frozenset(pairs)


def _registered(item: ObjectContents) -> Iterator[tuple[str, str]]:
    for entry in item.entries:
        if entry.is_kernel and not entry.is_finished:
            yield entry.kind, entry.name


def _image_kernels(kind: str, data: bytes, location: str) -> frozenset[str]:
    if kind == Kind.CUDA.value:
        return cubin_kernels(data, location=location)
    elf = read_elf(memory_view(data, location=location))
    table = ".symtab" if elf.is_relocatable else ".dynsym"
    return frozenset(
        symbol.name
        for symbol in elf.symbols(table)
        if symbol.is_function and symbol.is_global and symbol.section
    )


def _first_archs(kind: str, choices: Sequence[frozenset[tuple[str, str]]]) -> tuple[str, ...]:
    """Return the architectures of a kind in the first choice that has any."""
    found = (tuple(arch for other, arch in choice if other == kind) for choice in choices)
    return next((archs for archs in found if archs), ("",))


def _check_same(kernel: str, kind: str, first: ObjectContents, second: ObjectContents) -> None:
    ours, theirs = (_images_with(kernel, kind, item) for item in (first, second))
    for arch in sorted(ours.keys() & theirs.keys()):
        if ours[arch].isdisjoint(theirs[arch]):
            msg = f"kernel '{kernel}' is defined twice for {arch or 'host'}, here and in {second.location}"
            hint = "rename one of the kernels, or make it private"
            raise VerificationError(msg, hint=hint, location=first.location)


def _images_with(kernel: str, kind: str, item: ObjectContents) -> dict[str, set[bytes]]:
    """Return per architecture the images that may define the kernel (bitcode is not looked into)."""
    found: dict[str, set[bytes]] = {}
    for image in item.images:
        if image.kind != kind:
            continue
        is_opaque = image.image_kind not in (ImageKind.OBJECT, ImageKind.CUBIN)
        if is_opaque or kernel in _image_kernels(kind, image.data, item.location):
            found.setdefault(image.arch, set()).add(image.data)
    return found


def _cure(missing: Sequence[KernelImage], inputs: Sequence[ObjectContents]) -> str:
    first = missing[0]
    origin = next((item for item in inputs if first.kernel in item.kernels(first.kind)), None)
    if origin is None:
        return "name the object that defines the kernel on the link line"
    archs = sorted({image.arch for image in origin.images if image.kind == first.kind})
    if first.arch not in archs:
        made_for = ", ".join(arch or "host" for arch in archs) or "no device"
        target = first.arch or "host"
        return (
            f"{origin.location} is made for {made_for}: compile it with --offload-arch={target} too"
        )
    return f"compile {origin.location} again; its image for {first.arch or 'host'} lost the kernel"
