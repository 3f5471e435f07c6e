"""Check the inputs of a link, and report each file whose kernels the link would drop."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.abi import unnamed_host_archs
from mlir_offload.offload.link.coverage import (
    KernelImage,
    arch_name,
    compile_too,
    uncovered_kernels,
    unregistered_kernels,
)
from mlir_offload.offload.link.dropped_image import DropReasons
from mlir_offload.offload.link.duplicate import merged_kernels
from mlir_offload.offload.link.finding import Finding, listed
from mlir_offload.offload.link.grouping import LinkedImages
from mlir_offload.offload.link.held_image import device_arch, loaded_images
from mlir_offload.toolchain.errors import CompatibilityError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from mlir_offload.offload.abi import OffloadAbi
    from mlir_offload.offload.link.objects import ObjectContents


def check_link(inputs: Iterable[ObjectContents], abi: OffloadAbi) -> tuple[Finding, ...]:
    """Return the errors in the objects, library members and linked files of a link by a release.

    Inputs that the release cannot read come first, because other errors may follow from them. Raises
    VerificationError if an image that must be read is corrupt.
    """
    contents = tuple(inputs)
    reasons = DropReasons(abi)
    return (
        *(finding for item in contents for finding in _unread(item, abi, reasons)),
        *(finding for item in contents if item.is_answerable for finding in _linked_findings(item)),
        *_missing_findings([item for item in contents if item.is_relocatable], abi),
    )


def repeated_objects(inputs: Iterable[ObjectContents], line: Iterable[Path]) -> tuple[Path, ...]:
    """Return the objects with device code that the link line names more than once."""
    times = Counter(line)
    objects = dict.fromkeys(item.path for item in inputs if item.images and not item.member)
    return tuple(path for path in objects if times[path] > 1)


def kind_notes(inputs: Iterable[ObjectContents]) -> tuple[str, ...]:
    """Return a note for each object without device code of an offload kind that other objects support.

    Kernels of mlir-offload that are compiled for several kinds run on the kind that the program selects.
    Other kinds in a program, such as OpenMP next to CUDA C++, have separate kernels.
    """
    objects = [item for item in inputs if item.runtime_symbols and not item.is_optional]
    made = {item.location: _kinds_of_kernels(item) for item in objects}
    several = frozenset().union(*(kinds for kinds in made.values() if len(kinds) > 1))
    return tuple(
        f"{name} has no device code of kind {' or '.join(sorted(several - kinds))}, which other"
        " objects have: its kernels fail where the program chooses such a device"
        for name, kinds in made.items()
        if kinds & several and several - kinds
    )


def _kinds_of_kernels(item: ObjectContents) -> frozenset[str]:
    """Return the offload kinds of the kernel that is registered for the most kinds."""
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for kind, kernel in item.registered:
        kinds[kernel].add(kind)
    ranked = sorted(kinds.values(), key=len)
    return frozenset(ranked[-1] if ranked else ())


def _unread(item: ObjectContents, abi: OffloadAbi, reasons: DropReasons) -> Iterator[Finding]:
    """Yield findings for an object that the wrapper of this release would not link completely."""
    if item.is_relocatable:
        yield from layout_findings(item, abi)
        yield from loss_findings(item, reasons)
        yield from _half_linked_findings(item)
        yield from _merged_findings(item)


def layout_findings(item: ObjectContents, abi: OffloadAbi) -> Iterator[Finding]:
    """Yield a finding if a release would silently not register the kernels of an object.

    An object for any release has an additional array, which this release ignores.
    """
    arrays = dict.fromkeys(
        (entry.section, entry.fields) for entry in item.entries if not entry.is_device_linked
    )
    sections, members = abi.entry.section_names, len(abi.entry.fields)
    misread = [name for name, fields in arrays if name in sections and fields != members]
    if arrays and sections.isdisjoint(name for name, _ in arrays):
        misread = [name for name, _ in arrays]
    if misread:
        yield Finding(
            f"its kernels are registered in {misread[0]}, which LLVM {abi.major} does not read",
            item.location,
            f"compile it again with LLVM {abi.major}, or link with the release that made it",
            CompatibilityError,
        )


def loss_findings(item: ObjectContents, reasons: DropReasons) -> Iterator[Finding]:
    """Yield a finding for each image of an object that the wrapper of a release drops or rejects."""
    abi = reasons.abi
    for image in item.images:
        reason = reasons.find(image)
        if reason:
            target = f"{image.kind} image for {arch_name(image.arch)}"
            yield Finding(
                f"LLVM {abi.major} would not link its {target}: {reason}",
                item.location,
                f"compile it again with LLVM {abi.major}, or link with the release that made it",
                CompatibilityError,
            )


def _half_linked_findings(item: ObjectContents) -> Iterator[Finding]:
    """Yield a finding if `clang -r --offload-link` of LLVM 18 or older produced an object.

    It links device code and registers it, but keeps the entries and images for the next link, where
    the second registration fails.
    """
    if not (item.fatbins or item.hip_fatbins):
        return
    entries = set(item.registered)
    linked = {(image.kind, name) for image in loaded_images(item) for name in image.kernels or ()}
    if entries & linked:
        yield Finding(
            "its device code is linked and registered, but its entries are left for another link",
            item.location,
            "make it with LLVM 19 or newer, or name the objects that it was made of",
            CompatibilityError,
        )


def _merged_findings(item: ObjectContents) -> Iterator[Finding]:
    """Yield a finding if a linker merged objects with kernels of the same names."""
    merged = merged_kernels(item)
    if merged:
        yield Finding(
            f"several objects with kernels of the same names are in it: {listed(merged)}",
            item.location,
            "link these objects to one with mlir-offload -r, which keeps the kernels apart",
        )


def _linked_findings(item: ObjectContents) -> Iterator[Finding]:
    """Yield findings for kernels that a shared library or device-linked object registers without an image."""
    lost = unregistered_kernels(item)
    if lost:
        names = listed([f"'{kernel}'" for kernel in dict.fromkeys(name for _, name in lost)])
        option = " -shared" if ".so" in item.path.suffixes else ""
        yield Finding(
            f"nothing registers its kernels {names}: it was linked without its device code",
            item.location,
            f"link it again with mlir-offload{option}, or with clang --offload-link{option}",
        )
    uncovered = uncovered_kernels(item)
    if uncovered:
        yield Finding(
            f"its device images lack kernels that it registers: {listed(uncovered)}",
            item.location,
            "compile all that is in it for the same architectures, and link it again",
        )


class _Shortage(Struct, frozen=True):
    """Kernels of one kind that an object registers, and the architectures for which it has no image."""

    item: ObjectContents
    kind: str
    kernels: tuple[str, ...]
    archs: tuple[str, ...]


def _missing_findings(contents: Sequence[ObjectContents], abi: OffloadAbi) -> Iterator[Finding]:
    """Yield a finding for each object whose kernels some linked image would lack.

    If an object contributes to a linked image, that image is assumed to contain its kernels; the linked file
    is verified later.
    """
    images = LinkedImages(contents, abi.target_groups)
    shortages = list(_shortages(contents, images))
    targets = {(lack.kind, arch) for lack in shortages for arch in lack.archs}
    held = {target: images.kernels(*target) for target in targets}
    for lack in shortages:
        if not images.archs(lack.kind):
            yield _without_image(lack)
            continue
        pairs = [
            KernelImage(lack.kind, arch, kernel)
            for arch in lack.archs
            for kernel in _lacking(lack.kernels, held[lack.kind, arch])
        ]
        if pairs:
            yield _for_other_archs(lack, pairs, _raw_archs(contents, lack.kind), abi)


def _shortages(contents: Sequence[ObjectContents], images: LinkedImages) -> Iterator[_Shortage]:
    objects = [item for item in contents if not item.is_optional]
    kinds = {kind for item in objects for kind, _ in item.registered}
    needed = {kind: images.archs(kind, objects) or images.archs(kind) for kind in kinds}
    for item in objects:
        kernels: dict[str, list[str]] = defaultdict(list)
        for kind, kernel in dict.fromkeys(item.registered):
            kernels[kind].append(kernel)
        for kind, names in kernels.items():
            archs = needed[kind]
            lacking = sorted(archs - images.archs(kind, [item]))
            if lacking or not archs:
                yield _Shortage(item, kind, tuple(names), tuple(lacking))


def _lacking(kernels: Iterable[str], held: Collection[str] | None) -> Iterator[str]:
    return (kernel for kernel in kernels if held is not None and kernel not in held)


def _without_image(lack: _Shortage) -> Finding:
    quoted = [f"'{name}'" for name in lack.kernels]
    return Finding(
        f"it registers {listed(quoted)}, but no file on the link line has device code of kind {lack.kind}",
        lack.item.location,
        "name the object that has the device code too, or compile the file again as a whole",
    )


def _raw_archs(contents: Iterable[ObjectContents], kind: str) -> list[str]:
    return sorted({image.arch for item in contents for image in item.images if image.kind == kind})


def _for_other_archs(
    lack: _Shortage, pairs: Sequence[KernelImage], all_archs: Collection[str], abi: OffloadAbi
) -> Finding:
    own = {device_arch(image) for image in lack.item.images if image.kind == lack.kind}
    lacking = sorted({pair.arch for pair in pairs})
    hint = compile_too(lack.item, sorted(own), lacking)
    if own.issuperset(lacking):
        archs = _raw_archs([lack.item], lack.kind)
        shown = listed([arch or "any processor" for arch in archs])
        hint = f"compile all objects with the same -march= and --for-clang=; the image here is for {shown}"
        # Without -march=, the arch depends on the release that an object is compiled for.
        if unnamed_host_archs().issuperset(all_archs):
            hint = (
                f"compile all objects with --for-clang={abi.major}, which links only images for the CPU"
                f" of one name together; the image here is for {shown}"
            )
    return Finding(
        f"other objects are made for {listed([arch_name(arch) for arch in lacking])},"
        f" for which nothing has its kernels: {listed(pairs)}",
        lack.item.location,
        hint,
    )
