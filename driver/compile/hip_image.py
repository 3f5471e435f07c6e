"""Device images for AMD GPUs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.driver.compile.image import (
    ImageFile,
    image_file,
    kernel_options,
    rdc_option,
    user_libraries,
)
from mlir_offload.driver.compile.older import not_taken, older_text, with_libraries
from mlir_offload.driver.option.compile_options import DeviceCode
from mlir_offload.toolchain.amdgpu import check_features
from mlir_offload.toolchain.errors import CompatibilityError, ToolchainError
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
from mlir_offload.translate.target_attribute import TargetAttribute, attribute_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mlir_offload.driver.compile.context import BuildContext
    from mlir_offload.driver.compile.split_file import ModuleFile
    from mlir_offload.driver.option.device_flags import DeviceFlags
    from mlir_offload.toolchain.target import Target


class HipImage(Struct, frozen=True):
    """An image to be made: for which GPU, what the program attaches for that, libraries to link."""

    path: Path
    target: Target
    attached: TargetAttribute
    libraries: tuple[Path, ...]


def make_module_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    """Make the image of a device module that was lowered for an AMD GPU."""
    image = image_file(context, lowered, target)
    own = attribute_for(module.module.targets, target) or TargetAttribute(target.kind)
    libraries = user_libraries(context, source, target, lowered, own.link)
    kernels = (*kernel_options(module), *rdc_option(context))
    make_hip_image(context, source, lowered, HipImage(image.path, target, own, libraries), kernels)
    return image


def make_hip_image(
    context: BuildContext, source: Path, lowered: Path, image: HipImage, options: Sequence[str]
) -> None:
    """Make an image of a lowered module for an AMD GPU; `options` name its kernels and functions.

    Raises ToolchainError where a kernel needs device libraries that are not there.
    """
    _check_form(context)
    executor, flags, path = context.executor, context.options.device_flags, image.path
    arch, own = image.target.arch, image.attached
    check_features(arch, (*own.all_features, *flags.device_opt))
    wanted = own.code_object or flags.code_object
    version = choose_code_object(context.consumer, context.rocm, arch, wanted)
    ready = path.with_name(f"{path.stem}.ready.ll")
    math = _device_math(flags, own.flags)
    chosen = (*options, *(("--ftz",) if math.flushes_denormals else ()))
    release = ("--llvm", str(context.consumer), "--code-object", str(version))
    older = older_text(context, lowered, context.llvm.version.major, str(source))
    executor.step("amdgpu-ir", (older, *chosen, *release, "-o", ready))
    rocm: tuple[Path, ...] = ()
    calls = needs_device_libraries(lowered.read_text(encoding="utf-8")) or _call_rocm(
        image.libraries
    )
    if calls and context.options.links_device_libraries:
        rocm = _rocm_libraries(context, source, image.target, version, math)
    for library in rocm:
        context.dependencies.add(source, library, is_system=True)
    prepared, left = with_libraries(context, context.llvm, ready, (*image.libraries, *rocm))
    codegen = AmdgpuCodegen(
        arch,
        context.options.opt_level if own.opt_level < 0 else own.opt_level,
        debug=context.options.debug,
        libraries=left,
        arguments=(*own.feature_arguments, *_flushing(math), *flags.device_opt),
    )
    command = amdgpu_image_command(context.llvm, prepared, path, codegen)
    executor.tool(command, path, diagnose=partial(not_taken, context))
    if rocm:
        names = [f"--library={library}" for library in rocm]
        executor.step("amdgpu-check", (path, "--arch", arch, *names, "--location", source))


def _check_form(context: BuildContext) -> None:
    options = context.options
    if options.gpu_rdc and options.device_code is DeviceCode.OBJECT:
        msg = "-fgpu-rdc: an object for an AMD GPU does not say which registers its functions use"
        hint = "use --device-code=bitcode: the link then compiles kernels and functions together"
        raise CompatibilityError(msg, hint=hint)


def _device_math(flags: DeviceFlags, attached: Sequence[str]) -> DeviceMath:
    """Return what is assumed of numbers: by the command line, and by the module's own flags."""
    fast = flags.fast_math or "fast" in attached
    return DeviceMath(
        flushes_denormals=flags.ftz or not {"daz", "ftz"}.isdisjoint(attached),
        finite_only=fast or "finite_only" in attached,
        unsafe=fast or "unsafe_math" in attached,
        rounds_sqrt_correctly="unsafe_sqrt" not in attached,
    )


def _flushing(math: DeviceMath) -> tuple[str, ...]:
    """Return what makes functions of libraries flush as the kernels that call them do."""
    flag = "-fdenormal-fp-math-f32=preserve-sign"
    return ("-Xclang", flag) if math.flushes_denormals else ()


def _call_rocm(libraries: Sequence[Path]) -> bool:
    return any(
        name in content
        for content in (path.read_bytes() for path in libraries)
        for name in (b"__ocml_", b"__ockl_", b"__oclc_")
    )


def _rocm_libraries(
    context: BuildContext, source: Path, target: Target, version: int, math: DeviceMath
) -> tuple[Path, ...]:
    """Return ROCm's device libraries, once it is known that this LLVM reads them."""
    from mlir_offload.offload.device.library import check_library

    if context.rocm is None or context.rocm.bitcode is None:
        msg = "a kernel calls functions of ROCm's device libraries, which were not found"
        hint = f"apt install {load_rocm_table().package}, or name a ROCm folder with --rocm-path="
        raise ToolchainError(msg, hint=hint, location=str(source))
    libraries = device_libraries(context.rocm, target.arch, version, math)
    for library in libraries:
        check_library(library, target, context.consumer)
    return libraries
