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
from mlir_offload.driver.split_file import ModuleFile
from mlir_offload.driver.steps import unsplit
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.target import NVPTX_TRIPLE, Kind, Target
from mlir_offload.translate.diagnostics import condense
from mlir_offload.translate.lower import can_use_redux, device_pipeline_command, translate_command

if TYPE_CHECKING:
    from mlir_offload.toolchain.cuda import CudaToolkit

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
    groups = groupby(ordered_targets(context, module), key=partial(can_use_redux, module.module))
    results = in_parallel(
        [
            partial(_compile_group, context, source, module, tuple(targets), redux=with_redux)
            for with_redux, targets in groups
        ]
    )
    images = tuple(image for _, made in results for image in made)
    return DeviceModule(module, results[0][0], images)


def ordered_targets(context: BuildContext, module: ModuleFile) -> list[Target]:
    """Return the targets in the order of their images: those that share a lowered text together."""
    return sorted(context.targets, key=partial(can_use_redux, module.module))


def _compile_group(
    context: BuildContext,
    source: Path,
    module: ModuleFile,
    targets: tuple[Target, ...],
    *,
    redux: bool,
) -> tuple[Path, list[ImageFile]]:
    lowered, _ = beside(
        partial(_lower, context, source, module, redux=redux),
        partial(_compile_device_runtime, context, targets),
    )
    make = {Kind.CUDA: _make_cuda_image, Kind.OPENMP: _make_cpu_image}
    images = in_parallel(
        [partial(make[target.kind], context, source, module, lowered, target) for target in targets]
    )
    return lowered, images


def _lower(context: BuildContext, source: Path, module: ModuleFile, *, redux: bool) -> Path:
    executor, llvm = context.executor, context.llvm
    stem = f"{module.path.stem}{'.redux' if redux else ''}"
    low, alone, text = (
        module.path.with_name(stem + end) for end in (".low.mlir", ".alone.mlir", ".ll")
    )
    diagnose = partial(condense, source=source)
    command = device_pipeline_command(
        llvm, module.path, low, module=module.module, redux=redux, debug=context.options.debug
    )
    executor.tool(command, low, decides=True, diagnose=diagnose)
    executor.step("unwrap", (low, "--triple", NVPTX_TRIPLE, "-o", alone), decides=True)
    executor.tool(translate_command(llvm, alone, text), text, decides=True, diagnose=diagnose)
    return text


def _make_cuda_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    from mlir_offload.toolchain.ptx import ptx_isa_for
    from mlir_offload.translate.device import (
        DeviceCodegen,
        cubin_command,
        needs_libdevice,
        nvptx_assembly_command,
        nvptx_bitcode_command,
    )

    executor, llvm, cuda, options = context.executor, context.llvm, context.cuda, context.options
    isa = ptx_isa_for(target.arch, context.consumer, cuda)
    codegen = DeviceCodegen(target.arch, isa, options.opt_level, debug=options.debug)
    ready, assembly = (lowered.with_suffix(f".{target.arch}.{end}") for end in ("ll", "s"))
    image = image_file(context, lowered, target)
    release = ("--llvm", str(context.consumer))
    executor.step("nvptx-ir", (lowered, *kernel_options(module), *release, "-o", ready))
    library = None
    if needs_libdevice(lowered.read_text(encoding="utf-8")):
        library = _libdevice(cuda, source)
        context.dependencies.add(source, library, is_system=True)
    if cuda is None or is_bitcode(context):
        executor.tool(nvptx_bitcode_command(llvm, ready, image.path, codegen, library), image.path)
        return image
    executor.tool(nvptx_assembly_command(llvm, ready, assembly, codegen, library), assembly)
    if options.debug:
        timed = assembly.with_suffix(".timed.s")
        executor.step("ptx-time", (assembly, "--time", str(context.source_time), "-o", timed))
        assembly = timed
    executor.tool(cubin_command(cuda, assembly, image.path, codegen, ()), image.path)
    return image


def is_bitcode(context: BuildContext) -> bool:
    """Return whether GPU code is left for the link to generate."""
    return context.cuda is None or context.options.device_code is DeviceCode.BITCODE


def image_file(context: BuildContext, beside: Path, target: Target) -> ImageFile:
    """Return the image that is made for a target, its file beside another one."""
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

    executor, llvm, options = context.executor, context.llvm, context.options
    level = options.opt_level
    prepared = _cpu_ir(context, source, module, lowered)
    runtime = _device_runtime(context)
    image = image_file(context, lowered, target)
    sanitizer = (options.sanitizer.flag,) if options.sanitizer else ()
    extra = (*(("-g",) if options.debug else ()), *sanitizer)
    executor.tool(
        cpu_image_command(
            llvm, prepared, runtime, image.path, opt_level=level, march=_HOST_MARCH, extra=extra
        ),
        image.path,
    )
    return image


def sanitize_option(context: BuildContext) -> tuple[str, ...]:
    """Return how a step is told of the sanitizer, if there is one."""
    return (f"--sanitize={context.options.sanitizer}",) if context.options.sanitizer else ()


def _benign_races(context: BuildContext, module: ModuleFile) -> tuple[str, ...]:
    sanitizer = context.options.sanitizer
    if sanitizer is None or not sanitizer.finds_races:
        return ()
    from mlir_offload.translate.sanitizer import lowered_reductions

    return lowered_reductions(module.path.read_text(encoding="utf-8", errors="surrogateescape"))


def _device_runtime(context: BuildContext) -> Path:
    return context.workspace / "cpu_device.bc"


def _compile_device_runtime(context: BuildContext, targets: Sequence[Target]) -> None:
    """Compile what every image for the CPU takes in, once for all of them."""
    if not any(target.kind is Kind.OPENMP for target in targets):
        return
    from mlir_offload.translate.cpu import cpu_runtime_command

    executor, output = context.executor, _device_runtime(context)
    options = context.options
    extra = options.sanitizer.runtime_flags if options.sanitizer else ()
    command = cpu_runtime_command(
        context.llvm, output, opt_level=options.opt_level, march=_HOST_MARCH, extra=extra
    )
    executor.once(output, partial(executor.tool, command, output))


def _cpu_ir(context: BuildContext, source: Path, module: ModuleFile, lowered: Path) -> Path:
    from mlir_offload.translate.cpu import cpu_prepare_command

    executor = context.executor
    prepared, inlined = lowered.with_suffix(".host.ll"), lowered.with_suffix(".inlined.ll")
    options = (*kernel_options(module), *sanitize_option(context), "--location", str(source))
    benign = [f"--benign={place}" for place in _benign_races(context, module)]
    executor.step("cpu-ir", (lowered, *options, *benign, "-o", prepared), decides=True)
    if not unsplit(prepared).exists():
        return prepared
    executor.tool(cpu_prepare_command(context.llvm, unsplit(prepared), inlined), inlined)
    executor.step("cpu-split", (inlined, "--from", lowered, *options, "-o", prepared))
    return prepared
