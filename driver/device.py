"""The device half of a program: lower each module, make an image of it for each target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.context import BuildContext
from mlir_offload.driver.older import (
    check_older_bitcode,
    not_taken,
    older_text,
    with_libraries,
)
from mlir_offload.driver.options import DeviceCode
from mlir_offload.driver.parallel import beside, in_parallel
from mlir_offload.driver.report import show_note
from mlir_offload.driver.split_file import ModuleFile
from mlir_offload.driver.steps import unsplit
from mlir_offload.offload.llvm_ir import is_written_in_process
from mlir_offload.toolchain.amdgpu import lowering_chip
from mlir_offload.toolchain.errors import CompatibilityError, ToolchainError
from mlir_offload.toolchain.target import Kind, Target
from mlir_offload.translate.device_form import form_of
from mlir_offload.translate.diagnostics import condense
from mlir_offload.translate.lower import (
    DeviceLowering,
    device_pipeline_command,
    lowering_for,
    translate_command,
)

if TYPE_CHECKING:
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.llvm import LlvmToolchain
    from mlir_offload.translate.device import DeviceCodegen

# The image for the CPU uses all that this CPU has: it runs where it was built.
_HOST_MARCH = "native"
_CUDA_HINT = "pip install 'mlir-offload[cuda]', or name a toolkit with --cuda-path="


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
    return sorted(context.targets, key=partial(lowering_for, module.module))


def _compile_group(
    context: BuildContext,
    source: Path,
    module: ModuleFile,
    lowering: DeviceLowering,
    targets: tuple[Target, ...],
) -> tuple[Path, list[ImageFile]]:
    lowered, _ = beside(
        partial(lower_module, context, source, module, lowering, targets[0]),
        partial(compile_device_runtime, context, targets),
    )
    make = {
        Kind.CUDA: make_cuda_image,
        Kind.HIP: _make_hip_image,
        Kind.OPENMP: _make_cpu_image,
    }
    images = in_parallel(
        [partial(make[target.kind], context, source, module, lowered, target) for target in targets]
    )
    return lowered, images


def lower_module(
    context: BuildContext,
    source: Path,
    module: ModuleFile,
    lowering: DeviceLowering,
    target: Target,
) -> Path:
    """Lower a module to LLVM IR with the intrinsics of the target's kind of device."""
    executor, llvm = context.executor, context.mlir
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
    executor.step("unwrap", (low, "--triple", lowering.triple, "-o", alone), decides=True)
    executor.tool(translate_command(llvm, alone, text), text, decides=True, diagnose=diagnose)
    return text


def make_cuda_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    """Make bitcode or a cubin, as asked; the latter too where the release that links cannot take it."""
    if not is_bitcode(context):
        return _make_cubin(context, source, module, lowered, target)
    try:
        return _make_nvptx_bitcode(context, source, module, lowered, target)
    except CompatibilityError as error:
        if context.options.wanted_device_code or not _can_make_cubin(context):
            raise
        show_note(f"{error.message}; {target} gets finished code instead (--device-code=object)")
        return _make_cubin(context, source, module, lowered, target)


def _make_nvptx_bitcode(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    """Make bitcode by the clang of the release that links."""
    from mlir_offload.translate.device import nvptx_bitcode_command

    # Whether it can be is known then, in a dry run too.
    older = older_text(context, lowered, context.consumer, str(source), decides=True)
    code = _NvptxCode(context, source, module, older, target, context.llvm)
    image = image_file(context, lowered, target)
    command = nvptx_bitcode_command(context.llvm, *code.ready(image.path))
    context.executor.tool(command, image.path, diagnose=partial(not_taken, context))
    if older != lowered:
        check_older_bitcode(context, lowered, image.path, code.codegen)
    return image


def _make_cubin(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    """Make a cubin, by the clang of the release that lowers where there is one."""
    from mlir_offload.translate.device import cubin_command, nvptx_assembly_command

    executor, options, cuda = context.executor, context.options, context.cuda
    llvm = context.mlir if context.mlir.has("clang") else context.llvm
    text = older_text(context, lowered, llvm.version.major, str(source))
    code = _NvptxCode(context, source, module, text, target, llvm)
    assembly = lowered.with_suffix(f".{target.arch}.s")
    image = ImageFile(lowered.with_suffix(f".{target.arch}.o"), target)
    command = nvptx_assembly_command(llvm, *code.ready(assembly))
    executor.tool(command, assembly, diagnose=partial(not_taken, context))
    if options.debug:
        timed = assembly.with_suffix(".timed.s")
        executor.step("ptx-time", (assembly, "--time", str(context.source_time), "-o", timed))
        assembly = timed
    if cuda is None:
        msg = "a cubin is made by ptxas, and no CUDA toolkit was found"
        raise ToolchainError(msg, hint=_CUDA_HINT)
    executor.tool(cubin_command(cuda, assembly, image.path, code.codegen, ()), image.path)
    return image


def _make_hip_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    from mlir_offload.driver.hip_image import make_hip_image

    image = image_file(context, lowered, target)
    kernels = kernel_options(module)
    make_hip_image(context, source, lowered, image.path, target.arch, kernels)
    return image


@dataclass(frozen=True, slots=True)
class _NvptxCode:
    """A device module on its way to NVPTX code of one release of LLVM."""

    context: BuildContext
    source: Path
    module: ModuleFile
    text: Path
    target: Target
    llvm: LlvmToolchain

    @property
    def codegen(self) -> DeviceCodegen:
        """Return how code is generated."""
        from mlir_offload.toolchain.ptx import ptx_isa_for
        from mlir_offload.translate.device import DeviceCodegen

        options, major = self.context.options, self.llvm.version.major
        isa = ptx_isa_for(self.target.arch, major, self.context.cuda)
        return DeviceCodegen(self.target.arch, isa, options.opt_level, debug=options.debug)

    def ready(self, output: Path) -> tuple[Path, Path, DeviceCodegen, Path | None]:
        """Return what clang compiles, to what and how, and the library that it links in."""
        source, library = self._prepare(), self._library()
        wanted = () if library is None else (library,)
        source, left = with_libraries(self.context, self.llvm, source, wanted)
        return source, output, self.codegen, next(iter(left), None)

    def _prepare(self) -> Path:
        """Return the module with its target, its kernels marked."""
        ready = self.text.with_suffix(f".{self.target.arch}.ll")
        release = ("--llvm", str(self.llvm.version.major))
        kernels = kernel_options(self.module)
        self.context.executor.step("nvptx-ir", (self.text, *kernels, *release, "-o", ready))
        return ready

    def _library(self) -> Path | None:
        """Return libdevice where the module calls it."""
        from mlir_offload.translate.device import needs_libdevice

        if not needs_libdevice(self.text.read_text(encoding="utf-8")):
            return None
        library = self.context.libdevice or _libdevice(self.context.cuda, self.source)
        self.context.dependencies.add(self.source, library, is_system=True)
        return library


def is_bitcode(context: BuildContext) -> bool:
    """Return whether GPU code is left for the link to generate.

    Bitcode is written by the release that links alone; where that is not installed, by none.
    """
    if not context.releases.is_consumer_here:
        return False
    return context.cuda is None or context.options.device_code is DeviceCode.BITCODE


def _can_make_cubin(context: BuildContext) -> bool:
    return context.cuda is not None and context.mlir.has("clang")


def image_file(context: BuildContext, beside: Path, target: Target) -> ImageFile:
    """Return the image that is made for a target, its file beside another one."""
    if target.kind is Kind.HIP:
        is_code = context.options.device_code is DeviceCode.OBJECT
        ending = "o" if is_code or not context.releases.is_consumer_here else "bc"
        stem = beside.stem.removesuffix(f".{lowering_chip(target.arch)}")
        name = f"{stem}.{target.arch.replace(':', '.')}.{ending}"
        return ImageFile(beside.with_name(name), target)
    from mlir_offload.toolchain.ptx import ptx_isa_for

    if target.kind is Kind.CUDA and is_bitcode(context):
        isa = ptx_isa_for(target.arch, context.consumer, context.cuda)
        return ImageFile(beside.with_suffix(f".{target.arch}.bc"), target, f"+ptx{isa}")
    return ImageFile(beside.with_suffix(f".{target.arch}.o"), target)


def as_made(image: ImageFile) -> ImageFile:
    """Return an image that a step of its own made, as what it is: bitcode, or finished code instead."""
    if image.path.suffix != ".bc" or not image.path.exists():
        return image
    with image.path.open("rb") as stream:
        if stream.read(4) == b"BC\xc0\xde":
            return image
    return ImageFile(image.path.rename(image.path.with_suffix(".o")), image.target)


def _libdevice(cuda: CudaToolkit | None, source: Path) -> Path:
    if cuda is None or cuda.libdevice is None:
        msg = "a kernel calls math functions of libdevice, which is part of the CUDA toolkit"
        raise ToolchainError(msg, hint=_CUDA_HINT, location=str(source))
    return cuda.libdevice


def _make_cpu_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    prepared = cpu_ir(context, source, module, lowered)
    prepared = older_text(context, prepared, context.llvm.version.major, str(source))
    return finish_cpu_image(context, prepared, image_file(context, lowered, target))


def finish_cpu_image(context: BuildContext, prepared: Path, image: ImageFile) -> ImageFile:
    """Compile what `cpu_ir` made, with the device runtime, for the CPU that this is."""
    from mlir_offload.translate.cpu import cpu_image_command

    executor, llvm, options = context.executor, context.llvm, context.options
    level = options.opt_level
    prepared, left = with_libraries(context, llvm, prepared, (_device_runtime(context),))
    runtime = next(iter(left), None)
    debug = ("-g",) if options.debug else ()
    executor.tool(
        cpu_image_command(
            llvm, prepared, runtime, image.path, opt_level=level, march=_HOST_MARCH, extra=debug
        ),
        image.path,
        diagnose=partial(not_taken, context),
    )
    return image


def _device_runtime(context: BuildContext) -> Path:
    return context.workspace / "cpu_device.bc"


def compile_device_runtime(context: BuildContext, targets: Sequence[Target]) -> None:
    """Compile what every image for the CPU takes in, once for all of them."""
    if not any(target.kind is Kind.OPENMP for target in targets):
        return
    from mlir_offload.translate.cpu import cpu_runtime_command

    executor, output = context.executor, _device_runtime(context)
    command = cpu_runtime_command(
        context.llvm, output, opt_level=context.options.opt_level, march=_HOST_MARCH
    )
    executor.once(output, partial(executor.tool, command, output))


def cpu_ir(context: BuildContext, source: Path, module: ModuleFile, lowered: Path) -> Path:
    """Rewrite a lowered module for the CPU, by opt where the kernels have barriers.

    Without opt llvmlite does its part, if it is of the same release. Else each work-item runs on a
    stack of its own, which is slow.
    """
    executor = context.executor
    prepared, inlined = lowered.with_suffix(".host.ll"), lowered.with_suffix(".inlined.ll")
    options = (*kernel_options(module), "--location", str(source))
    executor.step("cpu-ir", (lowered, *options, "-o", prepared), decides=True)
    if not unsplit(prepared).exists():
        return prepared
    if _inline(context, source, unsplit(prepared), inlined):
        executor.step("cpu-split", (inlined, "--from", lowered, *options, "-o", prepared))
    else:
        executor.step("cpu-ir", (lowered, *options, "--fibers", "-o", prepared))
    return prepared


def _inline(context: BuildContext, source: Path, text: Path, output: Path) -> bool:
    """Have a module inlined that is to be split at its barriers; say whether there is what does it."""
    executor, llvm = context.executor, context.llvm
    major = llvm.version.major
    if llvm.has("opt"):
        from mlir_offload.translate.cpu import cpu_prepare_command

        command = cpu_prepare_command(llvm, older_text(context, text, major, str(source)), output)
        executor.tool(command, output, diagnose=partial(not_taken, context))
        return True
    if llvm == context.mlir and is_written_in_process(major):
        executor.step("cpu-inline", (text, "-o", output))
        return True
    show_note(
        f"LLVM {major} has no opt here: kernels with barriers will be slow on the CPU"
        f" (apt install llvm-{major})"
    )
    return False
