"""The steps that only images for AMD GPUs take."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step_command import CommandGroup, argument, option

AMDGPU_STEPS = CommandGroup("mlir-offload step", "Run one step of an image for AMD GPUs.")


@AMDGPU_STEPS.command(
    "amdgpu-ir",
    argument("source", type=Path),
    option("--kernel", "kernels", multiple=True),
    option("--llvm", "major", type=int, required=True),
    option("--code-object", "version", type=int, required=True, help="its version: 4, 5, 6"),
    option("-o", "--output", type=Path, required=True),
)
def _amdgpu_ir(
    source: Path, kernels: tuple[str, ...], major: int, version: int, output: Path
) -> None:
    """Prepare the LLVM IR of a device module for the AMDGPU back end."""
    from mlir_offload.translate.amdgpu import amdgpu_device_ir

    text = source.read_text(encoding="utf-8", errors="surrogateescape")
    made = amdgpu_device_ir(text, kernels=kernels, llvm_major=major, code_object=version)
    output.write_text(made, encoding="utf-8", errors="surrogateescape")


@AMDGPU_STEPS.command(
    "amdgpu-check",
    argument("source", type=Path),
    option("--arch", required=True),
    option("--library", "libraries", multiple=True),
    option("--location", default="", help="the file that errors name"),
)
def _amdgpu_check(source: Path, arch: str, libraries: tuple[str, ...], location: str) -> None:
    """Fail where an image asks for what the device libraries that it was compiled with lack."""
    from mlir_offload.offload.amdgpu_image import check_resolved
    from mlir_offload.toolchain.byte_view import open_view

    with open_view(source) as view:
        check_resolved(view, arch=arch, libraries=libraries, location=location)
