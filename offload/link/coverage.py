"""Compare the kernels that the host registers with those in the device images of a file."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.device.code import read_device_code
from mlir_offload.offload.elf import ELF_MAGIC, read_elf
from mlir_offload.offload.image import is_bitcode
from mlir_offload.offload.kind_format import format_of
from mlir_offload.offload.link.finding import Finding, listed, raise_findings
from mlir_offload.offload.link.held_image import HeldImage, all_images, device_arch, loaded_images
from mlir_offload.offload.link.objects import ObjectContents, read_objects
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.target import all_kinds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path


_MAGIC_BYTES = 4


class KernelImage(Struct, frozen=True, order=True):
    """A kernel in the image of one kind and architecture (empty for the CPU)."""

    kind: str
    arch: str
    kernel: str

    def __str__(self) -> str:
        """Return the kernel with the target as `--offload-arch=` spells it."""
        return f"'{self.kernel}' for {arch_name(self.arch)}"


class ExpectedKernels(Struct, frozen=True):
    """The kernels that a link must produce, per kind, and the architectures of each kind.

    The architectures of library members count if the linker uses the members.
    """

    kernels: frozenset[tuple[str, str]]
    archs: frozenset[tuple[str, str]]
    member_archs: frozenset[tuple[str, str]] = frozenset()


def arch_name(arch: str) -> str:
    """Return the architecture as `--offload-arch=` spells it; that of the CPU is empty internally."""
    return arch or "host"


def expected_kernels(inputs: Iterable[ObjectContents]) -> ExpectedKernels:
    """Return the kernels and architectures that the files on a link line require.

    Shared libraries and device-linked objects are excluded, because they contain their own images.
    """
    contents = [item for item in inputs if item.is_relocatable]
    objects = [item for item in contents if not item.is_optional]
    members = [item for item in contents if item.is_optional]
    return ExpectedKernels(
        frozenset(pair for item in objects for pair in item.registered),
        frozenset((image.kind, device_arch(image)) for item in objects for image in item.images),
        frozenset((image.kind, device_arch(image)) for item in members for image in item.images),
    )


def held_kernels(item: ObjectContents) -> frozenset[KernelImage]:
    """Return the kernels in the images of a file, except in images that cannot be read."""
    return frozenset(
        KernelImage(image.kind, image.arch, kernel)
        for image in all_images(item)
        for kernel in image.kernels or ()
    )


def missing_kernels(
    linked: Path, expected: ExpectedKernels, inputs: Iterable[ObjectContents] = ()
) -> tuple[KernelImage, ...]:
    """Return each kernel that a linked file registers, or should register, but that an image lacks.

    Raises VerificationError if the file contains device images that cannot be read.
    """
    contents = read_objects(linked)
    images = tuple(image for item in contents for image in loaded_images(item))
    kernels = expected.kernels | {pair for item in contents for pair in item.registered}
    found = frozenset((image.kind, image.arch) for image in images)
    taken = expected.archs | (expected.member_archs & found)
    needed = {
        (kind, arch): names
        for kind, names in _by_kind(kernels).items()
        for arch in _first_archs(kind, (taken, expected.member_archs, found))
    }
    return _not_held(needed, images, _held_apart(contents, images, inputs))


def _held_apart(
    linked: Sequence[ObjectContents],
    images: Sequence[HeldImage],
    inputs: Iterable[ObjectContents],
) -> Counter[KernelImage]:
    """Count the kernels in images of separately device-linked objects.

    Such a kernel is not the kernel of the same name that the common link should produce.
    """
    together = {pair for item in linked for pair in item.registered}
    registered = {
        one for item in linked for one in _device_linked_kernels(item) if one[1:] in together
    }
    counts: Counter[KernelImage] = Counter()
    for item in inputs:
        own = _device_linked_kernels(item)
        if own & registered:
            counts.update(held_kernels(item))
            registered -= own
    # The driver device-linked the other objects separately, for all architectures of the link.
    targets = {(image.kind, image.arch) for image in images}
    counts.update(
        KernelImage(kind, arch, name)
        for _, kind, name in registered
        for other, arch in targets
        if other == kind
    )
    return counts


def _device_linked_kernels(item: ObjectContents) -> set[tuple[str, str, str]]:
    """Return the kernels of device-linked objects: an identifier of the device link, kind and name.

    An object for several releases has one array per release, all with the suffix of their device link.
    """
    return {
        (entry.section.rpartition("_")[2], entry.kind, entry.name)
        for entry in item.entries
        if entry.is_kernel and entry.is_device_linked
    }


def coverage_findings(
    linked: Path, inputs: Sequence[ObjectContents], *, name: str = ""
) -> tuple[Finding, ...]:
    """Return the kernels that the images of a linked file lack, grouped by the responsible input.

    `name` is the user's name for the linked file.
    """
    missing = missing_kernels(linked, expected_kernels(inputs), inputs)
    if not missing:
        return ()
    origins = _registering(inputs)
    groups: dict[str, list[KernelImage]] = {}
    for pair in missing:
        origin = origins.get((pair.kind, pair.kernel))
        groups.setdefault(origin.location if origin else "", []).append(pair)
    forms = _image_forms(inputs)
    return tuple(
        Finding(
            f"the device images lack kernels that the host registers: {listed(pairs)}",
            name or str(linked),
            _hint(pairs, origins.get((pairs[0].kind, pairs[0].kernel)), forms),
        )
        for pairs in groups.values()
    )


def check_resolved(linked: Path, *, name: str = "") -> None:
    """Raise VerificationError if linked SPIR-V calls undefined functions, which the wrapper does not reject."""
    for item in read_objects(linked):
        for image in item.images:
            if format_of(image.kind).links_undefined:
                code = read_device_code(image.content)
                if code is not None and code.undefined:
                    what = ", ".join(f"'{function}'" for function in code.undefined[:3])
                    msg = f"the kernels for {arch_name(image.arch)} call {what}, which nothing defines"
                    hint = "name the file that defines it, compiled with -fgpu-rdc, or its --device-lib="
                    raise VerificationError(msg, hint=hint, location=name or str(linked))


def has_sections(linked: Path) -> bool:
    """Return whether a linked file has section headers, which -z nosectionheader omits."""
    with open_view(linked) as view:
        return view.head(len(ELF_MAGIC)) != ELF_MAGIC or read_elf(view).section_count > 0


def check_entries(linked: Path, inputs: Iterable[ObjectContents], *, name: str = "") -> None:
    """Raise VerificationError if garbage collection of sections removed the entries of kernels."""
    kept = {(entry.kind, entry.name) for item in read_objects(linked) for entry in item.entries}
    lost = sorted(kernel for _, kernel in expected_kernels(inputs).kernels - kept)
    if lost:
        msg = f"the linker removed the entries that register kernels: {listed(lost)}"
        hint = "leave out --gc-sections or -z start-stop-gc"
        raise VerificationError(msg, hint=hint, location=name or str(linked))


def check_coverage(linked: Path, inputs: Sequence[ObjectContents], *, name: str = "") -> None:
    """Raise VerificationError if device images lack kernels; the error names the kernels and has a hint."""
    raise_findings(coverage_findings(linked, inputs, name=name))


def unregistered_kernels(item: ObjectContents) -> tuple[tuple[str, str], ...]:
    """Return the kind and name of each kernel that has an entry but no image in the file.

    Such kernels are not registered: the file was linked without the linker wrapper, or the wrapper dropped
    the images. For an object that is still to be linked, the result is empty.
    """
    entries = _answerable_kernels(item)
    if not entries:
        return ()
    images = tuple(loaded_images(item))
    opaque = {image.kind for image in images if image.kernels is None}
    held = {(image.kind, kernel) for image in images for kernel in image.kernels or ()}
    return tuple(sorted(pair for pair in entries - held if pair[0] not in opaque))


def uncovered_kernels(item: ObjectContents) -> tuple[KernelImage, ...]:
    """Return each kernel that only some of the images of a linked file contain."""
    answerable = _answerable_kernels(item)
    registered = _by_kind(answerable - frozenset(unregistered_kernels(item)))
    images = tuple(loaded_images(item)) if answerable else ()
    needed = {
        (image.kind, image.arch): registered[image.kind]
        for image in images
        if image.kind in registered
    }
    return _not_held(needed, images)


def _answerable_kernels(item: ObjectContents) -> frozenset[tuple[str, str]]:
    """Return the kernels that must be in the file itself, because its device link is complete."""
    return frozenset(
        (entry.kind, entry.name)
        for entry in item.entries
        if entry.is_kernel
        and entry.kind in all_kinds()
        and (entry.is_device_linked or not item.is_relocatable)
    )


def _by_kind(kernels: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for kind, kernel in kernels:
        found[kind].add(kernel)
    return found


def _not_held(
    needed: Mapping[tuple[str, str], Collection[str]],
    images: Sequence[HeldImage],
    apart: Counter[KernelImage] | None = None,
) -> tuple[KernelImage, ...]:
    """Return the needed kernels of each kind and architecture that no image contains.

    `apart` counts the copies of a kernel in separately device-linked objects, which are not needed kernels. An
    image that cannot be read is assumed to contain all kernels.
    """
    held: defaultdict[tuple[str, str], list[Collection[str] | None]] = defaultdict(list)
    for image in images:
        held[image.kind, image.arch].append(image.kernels)
    missing: list[KernelImage] = []
    for (kind, arch), kernels in needed.items():
        known = [own for own in held[kind, arch] if own is not None]
        if len(known) < len(held[kind, arch]):
            continue
        lost = set(kernels).difference(*known)
        for one, times in (apart or {}).items():
            is_needed = (one.kind, one.arch) == (kind, arch) and one.kernel in kernels
            if is_needed and sum(one.kernel in own for own in known) <= times:
                lost.add(one.kernel)
        missing += (KernelImage(kind, arch, kernel) for kernel in lost)
    return tuple(sorted(missing))


def _first_archs(kind: str, choices: Sequence[frozenset[tuple[str, str]]]) -> tuple[str, ...]:
    """Return the architectures of a kind in the first choice that has any."""
    found = (tuple(arch for other, arch in choice if other == kind) for choice in choices)
    return next((archs for archs in found if archs), ("",))


def _registering(inputs: Iterable[ObjectContents]) -> dict[tuple[str, str], ObjectContents]:
    """Return the file that registers each kernel; a file with images has precedence."""
    found: dict[tuple[str, str], ObjectContents] = {}
    for item in sorted(inputs, key=lambda item: not item.images):
        for entry in item.entries:
            found.setdefault((entry.kind, entry.name), item)
    return found


def _image_forms(inputs: Iterable[ObjectContents]) -> dict[tuple[str, str], set[bool]]:
    """Return whether the images for each kind and architecture are bitcode."""
    found: dict[tuple[str, str], set[bool]] = {}
    for item in inputs:
        for image in item.images if item.is_relocatable else ():
            form = is_bitcode(image.content.head(_MAGIC_BYTES))
            found.setdefault((image.kind, device_arch(image)), set()).add(form)
    return found


def _hint(
    pairs: Sequence[KernelImage],
    origin: ObjectContents | None,
    forms: Mapping[tuple[str, str], Collection[bool]],
) -> str:
    if origin is None:
        return "name the object that defines the kernel on the link line"
    made = {(image.kind, device_arch(image)) for image in origin.images}
    lacking = sorted({pair.arch for pair in pairs if (pair.kind, pair.arch) not in made})
    if lacking:
        kinds = {pair.kind for pair in pairs}
        return compile_too(origin, sorted(arch for kind, arch in made if kind in kinds), lacking)
    arch = arch_name(pairs[0].arch)
    if len(forms.get((pairs[0].kind, pairs[0].arch), ())) > 1:
        # LLVM 15 drops the kernels of bitcode if another image for the target is machine code.
        return (
            f"compile {origin.location} with --device-code=object, as other objects for {arch} are; "
            "or those to bitcode (clang: -foffload-lto)"
        )
    return f"compile {origin.location} again; its image for {arch} lost the kernel"


def compile_too(origin: ObjectContents, archs: Sequence[str], lacking: Sequence[str]) -> str:
    """Return the hint for an object that lacks required architectures."""
    made_for = ", ".join(map(arch_name, archs)) or "no device"
    wanted = ",".join(map(arch_name, lacking))
    return f"{origin.location} is made for {made_for}: compile it with --offload-arch={wanted} too"
