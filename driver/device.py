"""The device half of a program: lower each module, make an image of it for each target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.context import BuildContext
from mlir_offload.driver.options import DeviceCode
from mlir_offload.driver.parallel import beside, in_parallel
from mlir_offload.driver.served import targets_for
from mlir_offload.driver.split_file import ModuleFile
from mlir_offload.driver.steps import unsplit
from mlir_offload.toolchain.amdgpu import lowering_chip
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.target import Kind, Target
from mlir_offload.translate.device_form import form_of
from mlir_offload.translate.diagnostics import condense
from mlir_offload.translate.lower import (
    DeviceLowering,
    device_pipeline_command,
    lowering_for,
    translate_command,
)
from mlir_offload.translate.target_attribute import TargetAttribute, attribute_for

if TYPE_CHECKING:
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.translate.device import DeviceCodegen

# The image for the CPU uses all that this CPU has: it runs where it was built.
_HOST_MARCH = "native"


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A finished device image on disk."""

    path: Path
    target: Target
    feature: str = ""

    @property
    def argument(self) -> str:
        """Return the image as the packager's `--image=` names it."""
        target = self.target
        words = f"file={self.path},triple={target.triple},arch={target.arch},kind={target.kind}"
        return f"--image={words},feature={self.feature}" if self.feature else f"--image={words}"


@dataclass(frozen=True, slots=True)
class DeviceModule:
    """What becomes of one device module: LLVM IR that tells the kernels' types, and images."""

    module: ModuleFile
    ir: Path
    images: tuple[ImageFile, ...]


def compile_device(
    context: BuildContext, source: Path, modules: Sequence[ModuleFile]
) -> tuple[DeviceModule, ...]:
    """Compile every device module for every target, side by side."""
    tasks = [partial(_compile_module, context, source, module) for module in modules]
    return tuple(in_parallel(tasks))


def kernel_options(module: ModuleFile) -> tuple[str, ...]:
    """Return the options that tell a step the kernels of a module."""
    return tuple(f"--kernel={kernel.symbol}" for kernel in module.module.kernels)


def _compile_module(context: BuildContext, source: Path, module: ModuleFile) -> DeviceModule:
    """Lower the module once for all targets that share the text, then make the images."""
    groups = groupby(ordered_targets(context, module), key=partial(lowering_for, module.module))
    results = in_parallel(
        [
            partial(_compile_group, context, source, module, lowering, tuple(targets))
            for lowering, targets in groups
        ]
    )
    images = tuple(image for _, made in results for image in made)
    return DeviceModule(module, results[0][0], images)


def ordered_targets(context: BuildContext, module: ModuleFile) -> list[Target]:
    """Return the targets in the order of their images: those that share a lowered text together."""
    return sorted(targets_for(context, module), key=partial(lowering_for, module.module))


def _compile_group(
    context: BuildContext,
    source: Path,
    module: ModuleFile,
    lowering: DeviceLowering,
    targets: tuple[Target, ...],
) -> tuple[Path, list[ImageFile]]:
    lowered, _ = beside(
        partial(_lower, context, source, module, lowering, targets[0]),
        partial(_compile_device_runtime, context, targets),
    )
    make = {
        Kind.CUDA: _make_cuda_image,
        Kind.HIP: _make_hip_image,
        Kind.OPENMP: _make_cpu_image,
    }
    images = in_parallel(
        [partial(make[target.kind], context, source, module, lowered, target) for target in targets]
    )
    return lowered, images


def _lower(
    context: BuildContext,
    source: Path,
    module: ModuleFile,
    lowering: DeviceLowering,
    target: Target,
) -> Path:
    executor, llvm = context.executor, context.llvm
    stem = f"{module.path.stem}{lowering.suffix}"
    low, alone, text = (
        module.path.with_name(stem + end) for end in (".low.mlir", ".alone.mlir", ".ll")
    )
    diagnose = partial(condense, source=source)
    command = device_pipeline_command(
        llvm,
        module.text_for(form_of(target)),
        low,
        module=module.module,
        lowering=lowering,
        debug=context.options.debug,
    )
    executor.tool(command, low, decides=True, diagnose=diagnose)
    executor.step(
        "unwrap", (low, "--triple", lowering.triple, *_rdc(context), "-o", alone), decides=True
    )
    executor.tool(translate_command(llvm, alone, text), text, decides=True, diagnose=diagnose)
    return text


def _make_cuda_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    from mlir_offload.translate.device import (
        cubin_command,
        nvptx_assembly_command,
        nvptx_bitcode_command,
    )

    executor, llvm, cuda, options = context.executor, context.llvm, context.cuda, context.options
    image = image_file(context, lowered, target)
    ready, assembly = prepared_file(image), assembly_file(image)
    release = ("--llvm", str(context.consumer))
    attached = attribute_for(module.module.targets, target)
    flushes = options.device_flags.ftz or (attached is not None and "ftz" in attached.flags)
    chosen = (*_rdc(context), *(("--ftz",) if flushes else ()))
    executor.step("nvptx-ir", (lowered, *kernel_options(module), *chosen, *release, "-o", ready))
    codegen, library = codegen_for(context, source, target, lowered, attached)
    if cuda is None or is_bitcode(context):
        executor.tool(nvptx_bitcode_command(llvm, ready, image.path, codegen, library), image.path)
        return image
    executor.tool(nvptx_assembly_command(llvm, ready, assembly, codegen, library), assembly)
    if options.debug:
        timed = assembly.with_suffix(".timed.s")
        executor.step("ptx-time", (assembly, "--time", str(context.source_time), "-o", timed))
        assembly = timed
    executor.tool(cubin_command(cuda, assembly, image.path, codegen), image.path)
    return image


def _make_hip_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    from mlir_offload.driver.hip_image import HipImage, make_hip_image

    image = image_file(context, lowered, target)
    own = attribute_for(module.module.targets, target) or TargetAttribute(target.kind)
    libraries = device_libraries(context, source, target, own.link)
    kernels = (*kernel_options(module), *_rdc(context))
    make_hip_image(context, source, lowered, HipImage(image.path, target, own, libraries), kernels)
    return image


def prepared_file(image: ImageFile) -> Path:
    """Return the LLVM IR that an image for CUDA is made of."""
    return image.path.with_suffix(".ll")


def assembly_file(image: ImageFile) -> Path:
    """Return the PTX that an image for CUDA is assembled from."""
    return image.path.with_suffix(".s")


def codegen_for(
    context: BuildContext,
    source: Path,
    target: Target,
    module: Path,
    attached: TargetAttribute | None = None,
) -> tuple[DeviceCodegen, Path | None]:
    """Return how code of a module is generated for a GPU of NVIDIA's, and libdevice if it calls it.

    What is attached to the module comes before what the command line says.
    """
    from mlir_offload.toolchain.ptx import ptx_isa_for
    from mlir_offload.translate.device import DeviceCodegen, needs_libdevice

    cuda, options = context.cuda, context.options
    own = attached or TargetAttribute(target.kind)
    libraries = device_libraries(context, source, target, own.link)
    codegen = DeviceCodegen(
        target.arch,
        ptx_isa_for(target.arch, context.consumer, cuda),
        options.opt_level if own.opt_level < 0 else own.opt_level,
        debug=options.debug,
        libraries=libraries,
        arguments=(*own.feature_arguments, *options.device_flags.device_opt),
        ptxas_arguments=options.device_flags.ptxas_arguments,
    )
    if not needs_libdevice(module.read_text(encoding="utf-8")) and not _call_libdevice(libraries):
        return codegen, None
    library = _libdevice(cuda, source)
    context.dependencies.add(source, library, is_system=True)
    return codegen, library


def _rdc(context: BuildContext) -> tuple[str, ...]:
    return ("--rdc",) if context.options.gpu_rdc else ()


def device_libraries(
    context: BuildContext, source: Path, target: Target, attached: Sequence[str] = ()
) -> tuple[Path, ...]:
    """Return the libraries of the user that kernels for a target may call, after a look into each.

    `attached` are those of the module, which the program names from its own directory.
    """
    chosen = [item.path for item in context.options.device_flags.libraries if item.serves(target)]
    chosen += [source.parent / name for name in attached]
    if chosen:
        from mlir_offload.offload.device_library import check_library

        for path in chosen:
            check_library(path, target, context.consumer)
            context.dependencies.add(source, path)
    return tuple(chosen)


def _call_libdevice(libraries: Sequence[Path]) -> bool:
    return any(b"__nv_" in path.read_bytes() for path in libraries)


def is_bitcode(context: BuildContext) -> bool:
    """Return whether GPU code is left for the link to generate."""
    return context.cuda is None or context.options.device_code is DeviceCode.BITCODE


def image_file(context: BuildContext, beside: Path, target: Target) -> ImageFile:
    """Return the image that is made for a target, its file beside another one."""
    if target.kind is Kind.HIP:
        ending = "bc" if context.options.device_code is DeviceCode.BITCODE else "o"
        stem = beside.stem.removesuffix(f".{lowering_chip(target.arch)}")
        name = f"{stem}.{target.arch.replace(':', '.')}.{ending}"
        return ImageFile(beside.with_name(name), target)
    from mlir_offload.toolchain.ptx import ptx_isa_for

    if target.kind is Kind.CUDA and is_bitcode(context):
        isa = ptx_isa_for(target.arch, context.consumer, context.cuda)
        return ImageFile(beside.with_suffix(f".{target.arch}.bc"), target, f"+ptx{isa}")
    return ImageFile(beside.with_suffix(f".{target.arch}.o"), target)


def _libdevice(cuda: CudaToolkit | None, source: Path) -> Path:
    if cuda is None or cuda.libdevice is None:
        msg = "a kernel calls math functions of libdevice, which is part of the CUDA toolkit"
        hint = "pip install 'mlir-offload[cuda]', or name a toolkit with --cuda-path="
        raise ToolchainError(msg, hint=hint, location=str(source))
    return cuda.libdevice


def _make_cpu_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    from mlir_offload.translate.cpu import cpu_image_command
    from mlir_offload.translate.device_ir import LINK_LIBRARY

    executor, llvm, options = context.executor, context.llvm, context.options
    level = options.opt_level
    prepared = _cpu_ir(context, source, module, lowered)
    runtime = _device_runtime(context)
    image = image_file(context, lowered, target)
    libraries = device_libraries(context, source, target)
    linked = tuple(
        word for path in libraries for word in ("-Xclang", LINK_LIBRARY, "-Xclang", str(path))
    )
    extra = (*(("-g",) if options.debug else ()), *linked, *options.device_flags.device_opt)
    executor.tool(
        cpu_image_command(
            llvm, prepared, runtime, image.path, opt_level=level, march=_HOST_MARCH, extra=extra
        ),
        image.path,
    )
    return image


def _device_runtime(context: BuildContext) -> Path:
    return context.workspace / "cpu_device.bc"


def _compile_device_runtime(context: BuildContext, targets: Sequence[Target]) -> None:
    """Compile what every image for the CPU takes in, once for all of them."""
    if not any(target.kind is Kind.OPENMP for target in targets):
        return
    from mlir_offload.translate.cpu import cpu_runtime_command

    executor, output = context.executor, _device_runtime(context)
    command = cpu_runtime_command(
        context.llvm, output, opt_level=context.options.opt_level, march=_HOST_MARCH
    )
    executor.once(output, partial(executor.tool, command, output))


def _cpu_ir(context: BuildContext, source: Path, module: ModuleFile, lowered: Path) -> Path:
    from mlir_offload.translate.cpu import cpu_prepare_command

    executor = context.executor
    prepared, inlined = lowered.with_suffix(".host.ll"), lowered.with_suffix(".inlined.ll")
    target = next(target for target in context.targets if target.kind is Kind.OPENMP)
    libraries = device_libraries(context, source, target)
    known = (f"--device-lib={path}" for path in libraries)
    options = (*kernel_options(module), *known, "--location", str(source))
    executor.step("cpu-ir", (lowered, *options, "-o", prepared), decides=True)
    if not unsplit(prepared).exists():
        return prepared
    executor.tool(cpu_prepare_command(context.llvm, unsplit(prepared), inlined), inlined)
    executor.step("cpu-split", (inlined, "--from", lowered, *options, "-o", prepared))
    return prepared
