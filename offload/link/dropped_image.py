"""Find the images that the linker wrapper of a release would drop, mostly silently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mlir_offload.offload.abi import OffloadAbi, offload_table
from mlir_offload.offload.container.packager import (
    device_of,
    ending_of,
    linked_endings,
    loss_of,
    packaged_devices,
)
from mlir_offload.offload.image import FORM_BYTES, image_form_of
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.target import Target

if TYPE_CHECKING:
    from mlir_offload.offload.container.binary import PackagedImage


def links_device(target: Target, major: int) -> bool:
    """Return whether the linker wrapper of a release links any code for a target."""
    return bool(linked_endings(device_of(target.triple), major))


def check_device_link(target: Target, major: int) -> None:
    """Raise CompatibilityError if the linker wrapper of a release links no code for a target."""
    if not links_device(target, major):
        device = device_of(target.triple)
        rows = offload_table()["linked_images"][device]
        oldest = min(row["since"] for row in rows if row["forms"])
        msg = f"--offload-arch={target}: the linker wrapper of LLVM {major} links no code for {device}"
        hint = f"link with LLVM {oldest} or newer, or leave {target} out of --offload-arch"
        raise CompatibilityError(msg, hint=hint)


class DropReasons:
    """Why the linker wrapper of a release would lose images; the same for images that are labelled alike."""

    def __init__(self, abi: OffloadAbi) -> None:
        """Know no image yet."""
        self.abi = abi
        self._known: dict[tuple[object, ...], str] = {}

    def find(self, image: PackagedImage) -> str:
        """Return why an image of an object would be lost, as `find_drop_reason`."""
        form = image_form_of(image.content.head(FORM_BYTES))
        numbers = (image.version, image.kind_code, image.image_kind)
        label = (form, image.kind, image.triple, image.arch, *numbers)
        reason = self._known.get(label)
        if reason is None:
            reason = self._known[label] = find_drop_reason(image, self.abi)
        return reason


def find_drop_reason(image: PackagedImage, abi: OffloadAbi) -> str:
    """Return why the linker wrapper of a release would drop an image of an object; empty if it links.

    Some releases fail on such an image, others drop it silently.
    """
    if image.version not in abi.container_versions:
        return f"it is in an offload binary of version {image.version}"
    if image.kind_code not in dict(abi.kind_codes).values():
        return f"its offload kind has the number {image.kind_code}, that of another release"
    device = device_of(image.triple)
    if device not in packaged_devices()["kinds"].get(image.kind, ()):
        return f"kind {image.kind} has no device link for {image.triple or 'no triple'}"
    if device in packaged_devices()["need_arch"] and not image.arch:
        return "it has no architecture"
    return _form_loss(image, linked_endings(device, abi.major), abi)


def _form_loss(image: PackagedImage, linked: Mapping[str, Sequence[str]], abi: OffloadAbi) -> str:
    form = image_form_of(image.content.head(FORM_BYTES))
    endings = linked.get(form.value)
    if endings is None:
        return f"it is a {form}: {loss_of(form)}"
    if ending_of(image.image_kind, abi) not in endings:
        return f"it is a {form}, but is packaged as image kind {image.image_kind}"
    return ""
