"""Precompiled device images in a program: their format, GPUs, and kernel parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.container.bundle import hip_images
from mlir_offload.offload.container.fatbin import read_fatbins
from mlir_offload.offload.device.code import read_device_code
from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel, KernelParameter
from mlir_offload.offload.image import AMDGPU_KERNEL, FORM_BYTES, ImageForm, image_form_of
from mlir_offload.offload.kind_format import format_of
from mlir_offload.toolchain.amdgpu import processor_of
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.target import Kind, Target, sm_number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_LINKED = frozenset(
    (ImageForm.EXECUTABLE_CUBIN, ImageForm.FATBINARY, ImageForm.HSACO, ImageForm.BUNDLE)
)
_AMDGPU_TARGET = re.compile(rb'^[ \t]*\.amdgcn_target "amdgcn-amd-amdhsa--([^"\n]+)"', re.MULTILINE)
_WORD_BITS = (1, 8, 16, 32, 64)
_PTX_INTEGERS = {f".{sign}{bits}": f"i{bits}" for sign in "us" for bits in _WORD_BITS[1:]}
_IR_TYPES = {
    **_PTX_INTEGERS,
    **{f"i{bits}": f"i{bits}" for bits in _WORD_BITS},
    ".f32": "float",
    ".f64": "double",
    "float": "float",
    "double": "double",
    "ptr": "ptr",
    "global_buffer": "ptr",
}
# An unknown signature has one parameter of a type that matches no C++ type.
_OPAQUE = "[{} x i8]"


class PrecompiledImage(Struct, frozen=True):
    """The format of an image and the GPUs of a kind that it is for: `archs`, or any if that is empty.

    `ptx` is the oldest GPU for the PTX in the image; newer GPUs also run it. `producer` is the LLVM release
    that wrote the bitcode, 0 if unknown.
    """

    kind: Kind
    form: ImageForm
    archs: tuple[str, ...] = ()
    ptx: str = ""
    producer: int = 0

    @property
    def is_linked(self) -> bool:
        """Return whether the image is linked; the device link skips it."""
        return self.form in _LINKED

    def is_compatible(self, target: Target) -> bool:
        """Return whether the target runs the image, or code compiled from it."""
        if target.kind is not self.kind:
            return False
        if target.arch in self.archs or (self.ptx and runs_ptx(self.ptx, target.arch)):
            return True
        is_source = self.form in {ImageForm.BITCODE, ImageForm.AMDGPU_ASSEMBLY}
        return is_source and (not self.archs or processor_of(target.arch) in self.archs)

    @property
    def made_for(self) -> str:
        """Return the GPUs as text for messages."""
        newer = f"{self.ptx} and newer" if self.ptx else ""
        return (
            ", ".join((*self.archs, *((newer,) if newer else ()))) or f"any GPU of kind {self.kind}"
        )


def runs_ptx(ptx: str, arch: str) -> bool:
    """Return whether a GPU runs PTX for another one: an older one without architecture-specific features."""
    return ptx == arch or (ptx[-1:].isdigit() and sm_number(ptx) <= sm_number(arch))


def read_precompiled(
    content: bytes, kind: Kind, chip: str, word: str
) -> tuple[PrecompiledImage, tuple[DeviceKernel, ...]]:
    """Return the image and its kernels. `word` is the format and `chip` the GPU that the program states.

    Raises VerificationError if the image has another format, is for another GPU, or is corrupt.
    """
    form = _form(content, kind)
    if form not in format_of(kind).object_forms[word]:
        msg = f"expected {word} code, found: {form}"
        raise VerificationError(msg, hint="make it again with --gpu-module-to-binary")
    image, kernels = _read(content, kind, form, chip)
    known = {*image.archs, image.ptx}
    if chip and known != {""} and known and chip not in {*known, *map(processor_of, known)}:
        msg = f"expected code for {chip}, found code for {image.made_for}"
        raise VerificationError(msg, hint="make it again with --gpu-module-to-binary")
    return image, kernels


def parameter_types(kernel: DeviceKernel) -> tuple[str, ...]:
    """Return the LLVM types of the arguments that the host passes; opaque types if the image does not store them."""
    if kernel.parameters is None:
        return (_OPAQUE.format(0),)
    return tuple(
        _IR_TYPES.get(one.type) or _OPAQUE.format(one.size_bytes)
        for one in explicit_parameters(kernel.parameters)
    )


def explicit_parameters(parameters: Sequence[KernelParameter]) -> tuple[KernelParameter, ...]:
    """Return the parameters that the host passes, sorted by offset."""
    return tuple(sorted((one for one in parameters if not one.is_hidden), key=_place))


def _place(parameter: KernelParameter) -> int:
    return parameter.offset


def _form(content: bytes, kind: Kind) -> ImageForm:
    form = image_form_of(content[:FORM_BYTES])
    return format_of(kind).text_form(content) if form is ImageForm.UNKNOWN else form


def _read(
    content: bytes, kind: Kind, form: ImageForm, chip: str
) -> tuple[PrecompiledImage, tuple[DeviceKernel, ...]]:
    if form is ImageForm.AMDGPU_ASSEMBLY:
        names = dict.fromkeys(AMDGPU_KERNEL.findall(content))
        found = _AMDGPU_TARGET.search(content)
        arch = found[1].decode(errors="replace") if found else chip
        kernels = tuple(DeviceKernel(name.decode(errors="replace")) for name in names)
        return PrecompiledImage(kind, form, (arch,) if arch else ()), kernels
    if form in {ImageForm.FATBINARY, ImageForm.BUNDLE}:
        return _read_container(content, kind, form)
    code = _code(content)
    if form is ImageForm.BITCODE:
        archs = (chip,) if chip else ()
        return PrecompiledImage(kind, form, archs, producer=code.llvm_major or 0), code.kernels
    if form is ImageForm.PTX:
        return PrecompiledImage(kind, form, ptx=code.arch), code.kernels
    return PrecompiledImage(kind, form, (code.arch,)), code.kernels


def _read_container(
    content: bytes, kind: Kind, form: ImageForm
) -> tuple[PrecompiledImage, tuple[DeviceKernel, ...]]:
    parts = list(_parts(content, form))
    archs = tuple(dict.fromkeys(arch for arch, is_ptx, _ in parts if not is_ptx))
    ptx = min((arch for arch, is_ptx, _ in parts if is_ptx), key=sm_number, default="")
    return PrecompiledImage(kind, form, archs, ptx), _common([code.kernels for _, _, code in parts])


def _parts(content: bytes, form: ImageForm) -> Iterator[tuple[str, bool, DeviceCode]]:
    """Yield the architecture of each image, whether it is PTX, and its device code."""
    view = memory_view(content)
    if form is ImageForm.FATBINARY:
        for image in read_fatbins(view):
            yield image.arch, image.kind == "ptx", _code(image.content.whole())
        return
    for part in hip_images(view):
        yield part.arch, False, _code(part.content.whole())


def _common(images: Sequence[tuple[DeviceKernel, ...]]) -> tuple[DeviceKernel, ...]:
    """Return the kernels that every image defines; the others would be missing on some GPU."""
    shared: Collection[str] = (
        set.intersection(*({one.name for one in image} for image in images)) if images else ()
    )
    return tuple(one for one in (images[0] if images else ()) if one.name in shared)


def _code(content: bytes) -> DeviceCode:
    code = read_device_code(memory_view(content))
    if code is None:
        msg = "it contains an image of an unknown format"
        raise VerificationError(msg, hint="make it again with --gpu-module-to-binary")
    return code
