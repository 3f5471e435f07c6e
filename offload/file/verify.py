"""Verify a file as a whole: registered kernels without an image, and images that a link would drop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from mlir_offload.offload.container.contents import (
    Entry,
    Image,
    Part,
    Problem,
    ProblemKind,
    nested_images,
)
from mlir_offload.offload.container.file_form import FileForm
from mlir_offload.offload.kind_format import FORMATS, plain_kind

_SHOWN = 4
_LINKED_PACKAGING = "offload binary"
_RELOCATABLE = "ELF relocatable object"
_CUDA_FORMS = ("cubin",)
_AMD_FORMS = ("AMDGPU code object",)
_HOST_KIND = "host"


def verify_contents(part: Part) -> Part:
    """Return the part and its members, with the problems of the whole added."""
    if part.form == FileForm.MOB:
        # The kernels of a bundle have no images yet.
        return part
    images = tuple(_checked_image(image, part) for image in part.images)
    return replace(
        part,
        images=images,
        members=tuple(verify_contents(member) for member in part.members),
        problems=(*part.problems, *_part_problems(part)),
    )


def _checked_image(image: Image, part: Part) -> Image:
    """Return the image, with a problem if a link would drop its code: links use bitcode and relocatable code only."""
    if not _is_for_a_link(image, part) or image.code is None:
        return image
    lost = image.code.form in (*_CUDA_FORMS, *_AMD_FORMS) and image.code.is_relocatable is False
    if not lost:
        return image
    msg = (
        f"image {image.index} is an executable {image.code.form}: clang-linker-wrapper links it"
        " without its kernels, or refuses it"
    )
    hint = "package LLVM bitcode, or a relocatable object (ptxas -c, ld.lld -r)"
    return replace(image, problems=(*image.problems, Problem(ProblemKind.DROPPED_IMAGE, msg, hint)))


def _is_for_a_link(image: Image, part: Part) -> bool:
    """Return whether clang-linker-wrapper will use the image in a device link."""
    if image.container is None or image.container.form != _LINKED_PACKAGING:
        return False
    return not part.form.startswith("ELF") or part.form.startswith(_RELOCATABLE)


def _part_problems(part: Part) -> Iterator[Problem]:
    yield from _mixed_layouts(part.entries)
    kernels = _kernels_by_target(part.images)
    # If a part is corrupt, it may contain the image.
    if not part.problems:
        yield from _without_image(part, {kind for kind, _ in kernels})
    yield from _missing(part, kernels)
    yield from _unregistered(part, kernels)


def _mixed_layouts(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Report entry arrays of several releases that differ, because a link reads only one of them."""
    layouts: dict[tuple[int, int], set[tuple[str, str]]] = {}
    for entry in entries:
        releases = (entry.first_release, entry.last_release)
        layouts.setdefault(releases, set()).add((entry.kind, entry.name))
    every = set().union(*layouts.values()) if layouts else set()
    for (first, last), names in layouts.items():
        lacking = sorted(name for _, name in every - names)
        if lacking:
            msg = f"the entries that LLVM {first} to {last} read lack {_listed(lacking)}"
            hint = "compile all of it for one release, or with --for-clang=any"
            yield Problem(ProblemKind.MIXED_LAYOUTS, msg, hint)


def _kernels_by_target(
    images: tuple[Image, ...],
) -> dict[tuple[str, str], frozenset[str] | None]:
    """Return the kernels of each kind and architecture; None if those of an image are unknown."""
    found: dict[tuple[str, str], frozenset[str] | None] = {}
    for image in nested_images(images):
        if image.images or not image.kind or image.kind == _HOST_KIND:
            continue
        key = (plain_kind(image.kind), image.arch)
        known = found.get(key, frozenset())
        is_told = image.code is not None and not image.problems
        if image.code is None or not is_told or known is None:
            found[key] = None
            continue
        found[key] = known | {kernel.name for kernel in image.code.kernels}
    return found


def _without_image(part: Part, kinds: Collection[str]) -> Iterator[Problem]:
    """Report entries of kinds for which the file has no image at all: a plain linker drops images."""
    for kind in sorted({entry.kind for entry in part.entries if entry.is_kernel} - set(kinds)):
        names = sorted(_registered(part, kind))
        msg = f"nothing registers {_listed(names)} for {kind}: the file has no device image of this kind"
        hint = "link it again with mlir-offload, or with clang --offload-link"
        yield Problem(ProblemKind.UNREGISTERED_KERNEL, msg, hint)


def _missing(
    part: Part, kernels: Mapping[tuple[str, str], frozenset[str] | None]
) -> Iterator[Problem]:
    for (kind, arch), held in sorted(kernels.items()):
        registered = _registered(part, kind)
        lacking = sorted(registered - held) if held is not None else []
        if lacking:
            msg = f"no image for {kind} {arch or 'host'} holds {_listed(lacking)}, which the host registers"
            hint = "compile it for that architecture too, and link again"
            yield Problem(ProblemKind.MISSING_KERNEL, msg, hint)


def _unregistered(
    part: Part, kernels: Mapping[tuple[str, str], frozenset[str] | None]
) -> Iterator[Problem]:
    for kind in (one.name for one in FORMATS if one.registers_by_name):
        registered = _registered(part, kind)
        # nvcc and hipcc register by generated calls instead; a packaged file is registered elsewhere.
        is_ours = bool(registered) or (
            part.form.startswith(_RELOCATABLE)
            and any(_is_for_a_link(image, part) and image.kind == kind for image in part.images)
        )
        held = [names for (other, _), names in kernels.items() if other == kind and names]
        lacking = sorted(frozenset().union(*held) - registered) if is_ours and held else []
        if lacking:
            msg = f"no {kind} entry registers {_listed(lacking)}: the host cannot launch it"
            hint = "compile the host code with the device code, by one compiler"
            yield Problem(ProblemKind.UNREGISTERED_KERNEL, msg, hint)


def _registered(part: Part, kind: str) -> frozenset[str]:
    return frozenset(entry.name for entry in part.entries if entry.is_kernel and entry.kind == kind)


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
