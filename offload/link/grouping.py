"""The device images that the linker wrapper of a release links together.

The wrapper reads the images in link order. An image opens a group for its target, or joins that group, and
joins each group for a compatible target that an earlier image has opened (`object::areTargetsCompatible` in
llvm/lib/Object/OffloadBinary.cpp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlir_offload.offload.link.held_image import device_arch, packaged_kernels, runs_on_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlir_offload.offload.abi import TargetGroups
    from mlir_offload.offload.container.binary import PackagedImage
    from mlir_offload.offload.link.objects import ObjectContents

_AMDGPU = "amdgcn"
_MODES = "+-"


def are_compatible(one: tuple[str, str], other: tuple[str, str], rules: TargetGroups) -> bool:
    """Return whether an image of one target joins the group of another (triple, arch)."""
    (triple, arch), (other_triple, other_arch) = one, other
    if triple != other_triple:
        return False
    if arch == other_arch or rules.wildcard in {arch, other_arch}:
        return True
    if not rules.has_target_ids or not triple.startswith(_AMDGPU):
        return False
    processor, *features = arch.split(":")
    other_processor, *others = other_arch.split(":")
    if rules.into_specific:
        return processor == other_processor and set(features) <= set(others)
    modes = {feature[:-1]: feature[-1] for feature in features if feature[-1:] in _MODES}
    return processor == other_processor and all(
        modes.get(feature[:-1], feature[-1]) == feature[-1] for feature in others
    )


def group_targets(
    targets: Iterable[tuple[str, str]], rules: TargetGroups
) -> dict[tuple[str, str], list[int]]:
    """Return the indices of the images in each group, in the order in which the groups are opened."""
    groups: dict[tuple[str, str], list[int]] = {}
    numbered = list(enumerate(targets))
    if rules.into_specific:
        # The wrapper processes the most specific targets first.
        numbered.sort(key=lambda one: -one[1][1].count(":"))
    for number, target in numbered:
        joined = [other for other in groups if are_compatible(target, other, rules)]
        if target not in groups and not (rules.into_specific and joined):
            groups[target] = []
            joined.append(target)
        for other in joined:
            groups[other].append(number)
    return groups


def group_images(
    images: Iterable[PackagedImage], rules: TargetGroups
) -> dict[tuple[str, str], list[PackagedImage]]:
    """Return the groups by target, in the order in which the images of a link line open them."""
    given = list(images)
    groups = group_targets(((image.triple, image.arch) for image in given), rules)
    return {target: [given[number] for number in members] for target, members in groups.items()}


class LinkedImages:
    """The images that the link of some objects produces, by offload kind and arch, with their parts.

    Of the images for the CPU, a program only runs the first.
    """

    def __init__(self, contents: Sequence[ObjectContents], rules: TargetGroups) -> None:
        """Group the images of the objects, which are in link order."""
        self._parts: dict[tuple[str, str], list[PackagedImage]] = {}
        # Indexed by image, because a link of many objects looks up the part of each.
        self._archs: dict[int, set[tuple[str, str]]] = {}
        has_host = False
        for members in group_images(
            (image for item in contents for image in item.images), rules
        ).values():
            is_host = runs_on_host(members[0])
            if not (is_host and has_host):
                for kind in dict.fromkeys(image.kind for image in members):
                    arch = device_arch(members[0])
                    self._parts[kind, arch] = members
                    for image in members:
                        self._archs.setdefault(id(image), set()).add((kind, arch))
            has_host = has_host or is_host

    def archs(self, kind: str, parts_of: Iterable[ObjectContents] | None = None) -> frozenset[str]:
        """Return the archs of all linked images of a kind, or of those that contain images of `parts_of`."""
        if parts_of is None:
            return frozenset(arch for other, arch in self._parts if other == kind)
        own = (image for item in parts_of for image in item.images if image.kind == kind)
        return frozenset(
            arch for image in own for other, arch in self._archs.get(id(image), ()) if other == kind
        )

    def kernels(self, kind: str, arch: str) -> frozenset[str] | None:
        """Return the kernels of an image; None if one of its parts cannot be read."""
        held = [packaged_kernels(image) for image in self._parts[kind, arch]]
        known = [kernels for kernels in held if kernels is not None]
        return frozenset().union(*known) if len(known) == len(held) else None
