"""Find kernels that several files on a link line define with different code.

If the device link links bitcode or searches libraries, it silently keeps one of them, and every launch runs
that one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.link.coverage import arch_name
from mlir_offload.offload.link.finding import Finding, raise_findings
from mlir_offload.offload.link.held_image import is_equal, packaged_kernels
from mlir_offload.toolchain.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mlir_offload.offload.container.binary import PackagedImage
    from mlir_offload.offload.link.objects import ObjectContents

_CPP_MANGLING = "_Z"


class DuplicateKernel(Struct, frozen=True):
    """A kernel of one kind and architecture that two files define with different code."""

    kind: str
    arch: str
    kernel: str
    first: ObjectContents
    second: ObjectContents


def find_duplicates(inputs: Iterable[ObjectContents]) -> tuple[DuplicateKernel, ...]:
    """Return the kernels that objects and library members of a link define differently.

    Each later definition is paired with the first one. Kernels with C++ names are excluded, because of the
    one-definition rule. Images are only read if two files register the same name.
    """
    definers: dict[tuple[str, str], list[ObjectContents]] = defaultdict(list)
    for item in inputs:
        for kind in sorted(item.kinds if item.is_relocatable else ()):
            for kernel in dict.fromkeys(item.kernels(kind)):
                if not kernel.startswith(_CPP_MANGLING):
                    definers[kind, kernel].append(item)
    return tuple(
        duplicate
        for (kind, kernel), items in definers.items()
        if len(items) > 1
        for duplicate in _differing(kind, kernel, items)
    )


def merged_kernels(item: ObjectContents) -> tuple[str, ...]:
    """Return the kernels that one object registers more than once, with different code for a device.

    A linker merged several objects into it without linking their device code.
    """
    entries = [(entry.kind, entry.section, entry.name) for entry in item.entries if entry.is_kernel]
    if len(set(entries)) == len(entries):
        return ()
    repeated = {(kind, name) for (kind, _, name), times in Counter(entries).items() if times > 1}
    return tuple(
        sorted(
            name
            for kind, name in repeated
            if not name.startswith(_CPP_MANGLING)
            and any(map(_differ, _images_with(kind, name, item).values()))
        )
    )


def _differ(images: Sequence[PackagedImage]) -> bool:
    return any(not is_equal(images[0].content, image.content) for image in images[1:])


def check_duplicates(inputs: Iterable[ObjectContents]) -> None:
    """Raise SourceError if kernels of the same name differ; it names both files of each.

    A kernel that differs for several architectures is reported once.
    """
    archs: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for item in find_duplicates(inputs):
        key = (item.kind, item.kernel, item.first.location, item.second.location)
        archs[key].append(arch_name(item.arch))
    raise_findings(
        tuple(
            Finding(
                f"kernel '{kernel}' is defined twice for {', '.join(names)}, here and in {second}",
                first,
                "rename one of the kernels, or make it private",
                SourceError,
            )
            for (_, kernel, first, second), names in archs.items()
        )
    )


def _differing(
    kind: str, kernel: str, items: Sequence[ObjectContents]
) -> Iterator[DuplicateKernel]:
    first: dict[str, tuple[ObjectContents, list[PackagedImage]]] = {}
    for item in items:
        for arch, images in sorted(_images_with(kind, kernel, item).items()):
            if arch not in first:
                first[arch] = (item, images)
                continue
            other, theirs = first[arch]
            # Even if the code of two kernels is equal, functions that they call may differ.
            if not any(is_equal(a.content, b.content) for a in images for b in theirs):
                yield DuplicateKernel(kind, arch, kernel, other, item)


def _images_with(kind: str, kernel: str, item: ObjectContents) -> dict[str, list[PackagedImage]]:
    """Return, per architecture, the images that define the kernel or may define it."""
    found: dict[str, list[PackagedImage]] = defaultdict(list)
    for image in item.images:
        if image.kind == kind:
            kernels = packaged_kernels(image)
            if kernels is None or kernel in kernels:
                found[image.arch].append(image)
    return found
