"""The format and runtime of AMD GPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.offload.container import bundle
from mlir_offload.offload.device import amdgpu_processor
from mlir_offload.offload.image import AMDGPU_KERNEL, ImageForm
from mlir_offload.offload.kind_format import (
    CodeMakers,
    KindFormat,
    LinkedCodeRuntime,
    RuntimePlan,
    VendorContainers,
    library_arguments,
)
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from mlir_offload.toolchain.byte_view import ByteView
    from mlir_offload.toolchain.target import Target

_LIBAMDHIP = "libamdhip64.so"
_SONAME = pattern(r".*\.so(?:\.\d+)?")


class _Hip(KindFormat):
    name = Kind.HIP
    archs_macro = "MLIR_OFFLOAD_HIP_ARCHS"
    object_forms = {  # noqa: RUF012 (a table)
        "offload": frozenset({ImageForm.BITCODE}),
        "assembly": frozenset({ImageForm.AMDGPU_ASSEMBLY}),
        "bin": frozenset({ImageForm.HSACO, ImageForm.AMDGPU_OBJECT}),
        "fatbin": frozenset({ImageForm.HSACO, ImageForm.BUNDLE}),
    }
    linked_code = LinkedCodeRuntime(
        ".hip_fatbin",
        ".hipFatBinSegment",
        0x48495046,
        4096,
        "__hip",
        {
            "RegisterFatBinary": "ptr @{}(ptr)",
            "RegisterFunction": "i32 @{}(ptr, ptr, ptr, ptr, i32, ptr, ptr, ptr, ptr, ptr)",
            "UnregisterFatBinary": "void @{}(ptr)",
        },
    )
    is_launched_by_handle = True
    registers_by_name = True
    describes_parameters = True

    def check_arch(self, target: Target, makers: CodeMakers, /) -> None:
        """Raise CompatibilityError for a processor that the linking LLVM does not support."""
        amdgpu_processor.check_processor(target.arch, makers.linking)

    def runtime_definitions(self, plan: RuntimePlan, /) -> tuple[str, ...]:
        """Return the macro with the name of the library that the runtime loads."""
        if not loads_hip(plan.kinds):
            return ()
        return (f"-DMLIR_OFFLOAD_HIP_LIBRARY={_soname(plan.library(self.name))}",)

    def link_arguments(self, plan: RuntimePlan, /) -> tuple[str, ...]:
        """Return libamdhip64.so; if the runtime loads it at run time, only the option for its search path."""
        libamdhip = plan.library(self.name)
        if loads_hip(plan.kinds):
            return (f"-Wl,-rpath,{libamdhip.parent}",) if libamdhip else ()
        if libamdhip is None:
            msg = "the HIP runtime library (libamdhip64.so) was not found"
            hint = "apt install libamdhip64-dev, or name a ROCm folder with --rocm-path="
            raise ToolchainError(msg, hint=hint)
        return library_arguments(libamdhip)

    def linked_images(self, file: VendorContainers, /) -> Iterator[tuple[str, ByteView | None]]:
        """Yield the code objects of bundles."""
        for section in file.hip_fatbins:
            for image in bundle.hip_images(section):
                yield image.arch, image.content

    def text_form(self, content: bytes, /) -> ImageForm:
        """Return the assembly format if the content has a kernel descriptor."""
        return ImageForm.AMDGPU_ASSEMBLY if AMDGPU_KERNEL.search(content) else ImageForm.UNKNOWN


def loads_hip(kinds: Collection[Kind]) -> bool:
    """Return whether the runtime loads libamdhip64 at run time.

    A program for several kinds must also start on hosts without ROCm.
    """
    return Kind.HIP in kinds and len(set(kinds)) > 1


def _soname(libamdhip: Path | None) -> str:
    """Return the name by which the dynamic linker finds the library, with its major version."""
    if libamdhip is None:
        return _LIBAMDHIP
    match = _SONAME.match(libamdhip.resolve().name)
    return match.group() if match else _LIBAMDHIP


KIND = _Hip()
