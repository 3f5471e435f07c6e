"""Device images for AMD GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.rocm import (
    DeviceMath,
    choose_code_object,
    device_libraries,
    load_rocm_table,
)
from mlir_offload.translate.amdgpu import (
    AmdgpuCodegen,
    amdgpu_image_command,
    needs_device_libraries,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mlir_offload.driver.context import BuildContext


def make_hip_image(
    context: BuildContext,
    source: Path,
    lowered: Path,
    image: Path,
    arch: str,
    kernels: Sequence[str],
) -> None:
    """Make the image of a lowered module for one AMD GPU; `kernels` are the options that name them.

    Raises ToolchainError where a kernel needs device libraries that are not there.
    """
    executor, options, major = context.executor, context.options, context.consumer
    version = choose_code_object(major, context.rocm, arch)
    ready = image.with_name(f"{image.stem}.ready.ll")
    release = ("--llvm", str(major), "--code-object", str(version))
    executor.step("amdgpu-ir", (lowered, *kernels, *release, "-o", ready))
    libraries: tuple[Path, ...] = ()
    if needs_device_libraries(lowered.read_text(encoding="utf-8")):
        libraries = _device_libraries(context, source, arch, version)
    for library in libraries:
        context.dependencies.add(source, library, is_system=True)
    codegen = AmdgpuCodegen(arch, options.opt_level, debug=options.debug)
    executor.tool(amdgpu_image_command(context.llvm, ready, image, codegen, libraries), image)
    if libraries:
        names = [f"--library={library}" for library in libraries]
        executor.step("amdgpu-check", (image, "--arch", arch, *names, "--location", source))


def _device_libraries(
    context: BuildContext, source: Path, arch: str, version: int
) -> tuple[Path, ...]:
    """Return the device libraries, once it is known that this LLVM reads them."""
    from mlir_offload.offload.bitcode_library import check_library

    if context.rocm is None or context.rocm.bitcode is None:
        msg = "a kernel calls functions of ROCm's device libraries, which were not found"
        hint = f"apt install {load_rocm_table().package}, or name a ROCm folder with --rocm-path="
        raise ToolchainError(msg, hint=hint, location=str(source))
    libraries = device_libraries(context.rocm, arch, version, DeviceMath())
    for library in libraries:
        check_library(library, "amdgcn", context.consumer)
    return libraries
