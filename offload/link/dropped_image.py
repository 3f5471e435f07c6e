"""Refuse images that the linker wrapper of a release would lose, most of them silently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mlir_offload.offload.abi import OffloadAbi, offload_table, row_of
from mlir_offload.offload.container.packager import ImageArgument, packaged_image_kind
from mlir_offload.offload.image import FORM_BYTES, ImageForm, image_form_of
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.errors import CompatibilityError, UsageError
from mlir_offload.toolchain.target import Target

if TYPE_CHECKING:
    from mlir_offload.offload.container.binary import PackagedImage

_HOST = "host"
_OTHER = "other"
_GIVEN_ONCE = ("kind", "triple", "arch")

_REASONS: Mapping[ImageForm, str] = {
    **dict.fromkeys(
        (
            ImageForm.EXECUTABLE_CUBIN,
            ImageForm.HSACO,
            ImageForm.SHARED_OBJECT,
            ImageForm.EXECUTABLE,
        ),
        "it is linked already, and linked again it would have no kernels",
    ),
    **dict.fromkeys(
        (ImageForm.FATBINARY, ImageForm.BUNDLE),
        "it is a container, and the device link looks into none",
    ),
    ImageForm.OFFLOAD_BINARY: "it is packaged already",
    ImageForm.PTX: "its device link does not assemble it",
}
_OTHER_REASON = "the device link for this triple would drop it or fail"

_CURES: Mapping[str, str] = {
    "nvptx": "package LLVM bitcode, or a relocatable cubin as ptxas -c makes it",
    "amdgcn": "package LLVM bitcode, or a relocatable object as clang -c makes it for the GPU",
    "spirv": "package LLVM bitcode",
    _HOST: "package LLVM bitcode, or a relocatable object as clang -c makes it",
}


def links_device(target: Target, major: int) -> bool:
    """Return whether the linker wrapper of a release links any code for a target."""
    return bool(_linked_endings(_device_of(target.triple), major))


def check_device_link(target: Target, major: int) -> None:
    """Raise CompatibilityError where the linker wrapper of a release links no code for a target."""
    if not links_device(target, major):
        device = _device_of(target.triple)
        rows = offload_table()["linked_images"][device]
        oldest = min(row["since"] for row in rows if row["forms"])
        msg = f"--offload-arch={target}: the linker wrapper of LLVM {major} links no code for {device}"
        hint = f"link with LLVM {oldest} or newer, or leave {target} out of --offload-arch"
        raise CompatibilityError(msg, hint=hint)


def check_image_argument(argument: ImageArgument, abi: OffloadAbi) -> None:
    """Raise UsageError or CompatibilityError for an image that no link would find a use for.

    The packager writes such images silently.
    """
    if not argument.files:
        raise _usage(argument, "has no file", "write file=FILE")
    for key in _GIVEN_ONCE:
        if "," in argument.value(key):
            reason = f"gives {key} more than one value: {argument.value(key)}"
            raise _usage(argument, reason, "write an --image= for each")
    _check_kind(argument, abi)
    if not argument.value("triple"):
        hint = "name the target of the image, for example triple=nvptx64-nvidia-cuda"
        raise _usage(argument, "has no triple", hint)
    _check_device(argument)


def check_image_content(
    argument: ImageArgument, name: str, content: ByteView, abi: OffloadAbi
) -> int:
    """Return the image kind to write for a file of that name.

    Raises CompatibilityError for what the linker wrapper of the release would lose, or fail at.
    """
    head = content.head(FORM_BYTES)
    form = image_form_of(head)
    device = _device_of(argument.value("triple"))
    endings = _linked_endings(device, abi.major).get(form.value)
    if endings is None:
        what = str(form) if content.size else "an empty file"
        reason = _REASONS.get(form, _OTHER_REASON)
        msg = f"cannot package {what} for LLVM {abi.major}: {reason}"
        raise CompatibilityError(msg, hint=_CURES[device], location=name)
    kind = packaged_image_kind(name, head, abi)
    if _ending_of(kind, abi) not in endings:
        msg = f"cannot package {form} of this name for LLVM {abi.major}: it takes the ending for the form"
        raise CompatibilityError(msg, hint=f"name the file *.{endings[0]}", location=name)
    return kind


def find_drop_reason(image: PackagedImage, abi: OffloadAbi) -> str:
    """Return why the linker wrapper of a release would lose an image of an object; empty if it links.

    Some releases fail at such an image, others link silently.
    """
    if image.version not in abi.container_versions:
        return f"it is in an offload binary of version {image.version}"
    if image.kind_code not in dict(abi.kind_codes).values():
        return f"its offload kind has the number {image.kind_code}, that of another release"
    device = _device_of(image.triple)
    if device not in _table()["kinds"].get(image.kind, ()):
        return f"kind {image.kind} has no device link for {image.triple or 'no triple'}"
    if device in _table()["need_arch"] and not image.arch:
        return "it has no architecture"
    return _form_loss(image, _linked_endings(device, abi.major), abi)


def _form_loss(image: PackagedImage, linked: Mapping[str, Sequence[str]], abi: OffloadAbi) -> str:
    form = image_form_of(image.content.head(FORM_BYTES))
    endings = linked.get(form.value)
    if endings is None:
        return f"it is a {form}: {_REASONS.get(form, _OTHER_REASON)}"
    if _ending_of(image.image_kind, abi) not in endings:
        return f"it is a {form}, but is packaged as image kind {image.image_kind}"
    return ""


def _ending_of(image_kind: int, abi: OffloadAbi) -> str:
    """Return the ending of the files that the packager gives an image kind."""
    codes = abi.image_kinds_by_ending
    return next((ending for ending, code in codes if code == image_kind), _OTHER)


def _check_kind(argument: ImageArgument, abi: OffloadAbi) -> None:
    kind = argument.value("kind")
    if kind in dict(abi.kind_codes):
        return
    known = ", ".join(name for name, _ in abi.kind_codes)
    if not kind:
        raise _usage(argument, "has no offload kind", f"add kind=, one of {known}")
    if kind not in _table()["kinds"]:
        raise _usage(argument, f"names an unknown offload kind '{kind}'", f"use one of {known}")
    msg = f"{_spelled(argument)}: LLVM {abi.major} has no offload kind '{kind}'; the image would be dropped"
    raise CompatibilityError(msg, hint=f"package for a release that has it, or use one of {known}")


def _check_device(argument: ImageArgument) -> None:
    kind, triple = argument.value("kind"), argument.value("triple")
    device = _device_of(triple)
    devices = _table()["kinds"][kind]
    if device not in devices:
        msg = f"{_spelled(argument)}: code for {triple} would be lost under kind={kind}"
        hint = (
            f"a triple of kind={kind} starts with {' or '.join(devices)}; check kind= and triple="
        )
        raise CompatibilityError(msg, hint=hint)
    if device in _table()["need_arch"] and not argument.value("arch"):
        raise _usage(argument, "has no arch", "add the GPU, as arch=sm_90 or arch=gfx90a")


def _device_of(triple: str) -> str:
    """Return the row of the tables that a triple belongs to."""
    devices = offload_table()["linked_images"]
    return next((device for device in devices if triple.startswith(device)), _HOST)


def _linked_endings(device: str, major: int) -> Mapping[str, Sequence[str]]:
    forms: Mapping[str, Sequence[str]] = row_of(offload_table()["linked_images"][device], major)[
        "forms"
    ]
    return forms


def _table() -> Mapping[str, Mapping[str, Sequence[str]]]:
    table: Mapping[str, Mapping[str, Sequence[str]]] = offload_table()["packaged_devices"]
    return table


def _usage(argument: ImageArgument, reason: str, hint: str) -> UsageError:
    return UsageError(f"{_spelled(argument)} {reason}", hint=hint)


def _spelled(argument: ImageArgument) -> str:
    name = argument.value("file")
    return f"--image=file={name},..." if name else "an --image="
