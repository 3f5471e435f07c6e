"""Device images for NVIDIA GPUs (bitcode for the device link, or cubins), and their link."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlir_offload.driver.compile import downgrade as compile_downgrade
from mlir_offload.driver.compile import kept_ptx as compile_kept_ptx
from mlir_offload.driver.compile import linked_image, nvptx_code
from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.kind_build import (
    CppLanguage,
    DeviceModule,
    ImageFile,
    KindBuild,
    LinkTools,
    Sdk,
    SdkChoice,
)
from mlir_offload.driver.kind import cuda_choice, cuda_link
from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.option.compile_options import FAT_BINARY, DeviceCode, Mode
from mlir_offload.driver.step.step import NvptxIr, PtxTime
from mlir_offload.offload.abi import fatbinary_without_image, known_majors, load_abi
from mlir_offload.toolchain.errors import CompatibilityError, ToolchainError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.ptx import ptx_isa_for
from mlir_offload.toolchain.target import NVPTX_TRIPLE, Kind, Target
from mlir_offload.translate.kind import cuda as cuda_lowering

if TYPE_CHECKING:
    from mlir_offload.driver.step.split_file import ModuleFile, ObjectFile
    from mlir_offload.offload.container.mob_manifest import MobDevice, MobManifest
    from mlir_offload.offload.link.finding import Finding
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.inventory import Inventory
    from mlir_offload.toolchain.llvm import LlvmToolchain

# CUDA in the recipe of a bundle, as a shell expression, and its placeholder in the commands.
_RECIPE_CUDA, _RECIPE_PLACE = "${CUDA_PATH:-/usr/local/cuda}", "@CUDA@"


def _make_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    """Make bitcode or a cubin as requested; a cubin also if the linking LLVM cannot read the bitcode."""
    wants_code = context.options.mode is Mode.DEVICE and not context.options.emit_llvm
    if wants_code or not _is_bitcode(context):
        return _make_cubin(context, source, module, lowered, target)
    try:
        return _make_bitcode(context, source, module, lowered, target)
    except CompatibilityError as error:
        can_make_cubin = context.cuda is not None and context.mlir.has("clang")
        if context.options.wanted_device_code or not can_make_cubin:
            raise
        show_note(
            f"{error.message}; {target} gets a linked device image instead (--device-code=object)"
        )
        return _make_cubin(context, source, module, lowered, target)


def _make_bitcode(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    """Make bitcode with the clang of the linking LLVM."""
    # `decides`: also in a dry run, the downgrade shows whether bitcode is possible.
    older = context.text_for(context.consumer, lowered, source, decides=True)
    image = _image_file(context, lowered, target)
    is_assembled = context.options.needs_ptxas
    code = nvptx_code.NvptxCode(context, source, module, older, image, context.llvm, is_assembled)
    ready, codegen, libdevice = code.prepare()
    command = cuda_lowering.nvptx_bitcode_command(
        context.llvm, ready, image.path, codegen, libdevice
    )
    context.executor.tool(
        command, image.path, diagnose=lambda done: compile_downgrade.not_taken(context, done)
    )
    if older != lowered:
        compile_downgrade.verify_downgraded_bitcode(
            context, lowered, image.path, replace(codegen, libraries=())
        )
    return image


def _make_cubin(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    """Make a cubin, with the clang of the lowering LLVM if it is installed."""
    executor, cuda = context.executor, context.cuda
    llvm = context.mlir if context.mlir.has("clang") else context.llvm
    text = context.text_for(llvm.version.major, lowered, source)
    image = ImageFile(lowered.with_suffix(f".{target.arch}.o"), target)
    ready, codegen, libdevice = nvptx_code.NvptxCode(
        context, source, module, text, image, llvm
    ).prepare()
    assembly = compile_kept_ptx.assembly_file(image)
    command = cuda_lowering.nvptx_assembly_command(llvm, ready, assembly, codegen, libdevice)
    executor.tool(
        command, assembly, diagnose=lambda done: compile_downgrade.not_taken(context, done)
    )
    if context.options.debug:
        timed = assembly.with_suffix(".timed.s")
        executor.step(PtxTime(source=assembly, time=context.source_time, output=timed))
        assembly = timed
    is_alone = context.options.mode is Mode.DEVICE
    if is_alone and context.options.assembly:
        return image
    if cuda is None:
        msg = "a cubin is made by ptxas, and no CUDA toolkit was found"
        raise ToolchainError(msg, hint=nvptx_code.CUDA_HINT)
    is_linked = linked_image.needs_no_link(context, module, lowered)
    is_whole = is_linked or (is_alone and not context.options.gpu_rdc)
    command = cuda_lowering.cubin_command(cuda, assembly, image.path, codegen, is_whole=is_whole)
    executor.tool(command, image.path, is_shown="-v" in codegen.ptxas_arguments)
    return replace(image, is_linked=is_linked)


def _ptx_feature(context: BuildContext, archs: Collection[str]) -> str:
    """Return the target feature for the lowest PTX ISA version of these architectures, such as `+ptx78`."""
    return f"+ptx{min(ptx_isa_for(arch, context.consumer, context.cuda) for arch in archs)}"


def _is_bitcode(context: BuildContext) -> bool:
    """Return whether the device link generates the code.

    Only the linking LLVM writes bitcode for itself; if it is not installed, the image is a cubin.
    """
    if not context.releases.is_consumer_here:
        return False
    return context.cuda is None or context.options.device_code is DeviceCode.BITCODE


def _image_file(context: BuildContext, beside: Path, target: Target, /) -> ImageFile:
    """Return the image for a target, with a path next to `beside`."""
    if not _is_bitcode(context):
        return ImageFile(beside.with_suffix(f".{target.arch}.o"), target)

    is_assembled = context.options.needs_ptxas
    isa = ptx_isa_for(target.arch, context.consumer, context.cuda, is_assembled=is_assembled)
    return ImageFile(beside.with_suffix(f".{target.arch}.bc"), target, f"+ptx{isa}")


def _toolkit_for_given(context: BuildContext, source: Path) -> CudaToolkit:
    if context.cuda is None:
        msg = (
            "a program that holds PTX or cubins is compiled with a CUDA toolkit, and none was found"
        )
        raise ToolchainError(msg, hint=nvptx_code.CUDA_HINT, location=str(source))
    return context.cuda


def _plain_limit(manifest: MobManifest) -> tuple[int, tuple[int, int]] | None:
    """Return the first LLVM whose plain link works with every CUDA, and the first CUDA that older ones reject.

    None if every admitted release works with every CUDA.
    """
    if manifest.cuda is None:
        return None
    wants = [m for m in known_majors() if load_abi(m).fatbinary_option == "image"]
    if not wants or not any(manifest.llvm.admits(major) for major in wants):
        return None
    return wants[-1] + 1, fatbinary_without_image()


class _Cuda(KindBuild):
    name = Kind.CUDA
    modules = (
        "mlir_offload.translate.kind.cuda",
        "mlir_offload.toolchain.ptx",
    )
    link_modules = (
        "mlir_offload.offload.link.fatbinary_adapter",
        "mlir_offload.offload.device.cubin",
    )
    cpp = CppLanguage(
        "CUDA C++", "GPUs", "name an architecture of NVIDIA's with --offload-arch=sm_NN"
    )
    bundle_ending = "nvptx"
    is_run_by_doctor = True
    recipe_places = {_RECIPE_PLACE: _RECIPE_CUDA}  # noqa: RUF012 (a table)
    image_file = staticmethod(_image_file)
    make_image = staticmethod(_make_image)
    code_ending = ".cubin"
    fat_binary_ending = FAT_BINARY

    def code_alone(self, context: BuildContext, image: ImageFile, /) -> Path:
        """Return the cubin; with -S the PTX that it is assembled from."""
        options = context.options
        wants_text = options.assembly and not options.emit_llvm
        return compile_kept_ptx.assembly_file(image) if wants_text else image.path

    def step_arguments(self, context: BuildContext, /) -> tuple[str, ...]:
        """Return the format of the code."""
        form = DeviceCode.BITCODE if _is_bitcode(context) else DeviceCode.OBJECT
        return (f"--device-code={form.value}",)

    def step_time(self, context: BuildContext, /) -> int:
        """Return the timestamp written into line tables, so that it is part of the cache key; 1 without them."""
        is_written = context.options.debug and not _is_bitcode(context)
        return context.source_time if is_written else 1

    def assemble(
        self, context: BuildContext, source: Path, given: ObjectFile, target: Target, image: Path, /
    ) -> tuple[Command, ImageFile]:
        """Return the command that assembles PTX to a cubin.

        There is no -g: the PTX already contains its debug information, if any.
        """
        flags = context.options.device_flags.ptxas_arguments
        level = context.options.opt_level
        codegen = cuda_lowering.DeviceCodegen(target.arch, 0, level, ptxas_arguments=flags)
        cuda = _toolkit_for_given(context, source)
        command = cuda_lowering.cubin_command(cuda, given.path, image, codegen)
        return command, ImageFile(image, target, ptx=given.path)

    def pack(
        self,
        context: BuildContext,
        source: Path,
        chosen: Sequence[tuple[Target, Path]],
        output: Path,
        /,
        ptx: Sequence[tuple[Target, Path]] = (),
    ) -> None:
        """Write a fat binary of cubins and PTX."""
        cuda = _toolkit_for_given(context, source)
        context.executor.tool(cuda_link.fat_binary_command(cuda, chosen, ptx, output), output)

    def cpp_arguments(self, context: BuildContext, /) -> tuple[str, ...]:
        """Return --cuda-path=, without clang's warning about newer CUDA versions."""
        path = (f"--cuda-path={context.cuda.root}",) if context.cuda else ()
        return ("-Wno-unknown-cuda-version", *path)

    def runtime_library(self, context: BuildContext, /) -> Path | None:
        """Return libcudart_static.a or libcudart.so."""
        cuda = context.cuda
        return (cuda.cudart_static or cuda.cudart) if cuda else None

    def prepare_link(
        self,
        context: BuildContext,
        directory: Path,
        source: Path | None = None,
        device: Sequence[DeviceModule] = (),
    ) -> None:
        """Create a directory with the CUDA tools, wherever they are installed."""
        cuda_link.make_directory(context, directory, source, device)

    def link_arguments(
        self, context: BuildContext, archs: Collection[str], directory: Path, /
    ) -> tuple[str, ...]:
        """Return the path of the tools, and the options for compiling bitcode."""
        abi, level = load_abi(context.consumer), context.options.opt_level
        # If all device code is linked already, there is nothing to compile.
        feature = _ptx_feature(context, archs) if archs else ""
        return (
            *abi.cuda_path_arguments(directory),
            *abi.device_opt_arguments(NVPTX_TRIPLE, level),
            *(abi.device_feature_arguments(NVPTX_TRIPLE, feature) if archs else ()),
        )

    def link_folders(self, _context: BuildContext, directory: Path, /) -> tuple[Path, ...]:
        """Return the directory of the CUDA tools, where clang of LLVM 19 finds ptxas if images are bitcode."""
        return (directory / "bin",)

    def bundled_ir(
        self, consumer: int, text: Path, kernels: tuple[str, ...], output: Path, /
    ) -> NvptxIr:
        """Return the step that marks the kernels."""
        return NvptxIr(source=text, kernels=kernels, llvm=consumer, output=output)

    def calls_library(self, text: str, /) -> bool:
        """Return whether the IR calls libdevice."""
        return cuda_lowering.needs_libdevice(text)

    def recipe_call(
        self,
        manifest: MobManifest,
        clang: LlvmToolchain,
        device: MobDevice,
        arch: str,
        output: Path,
        /,
    ) -> tuple[str, ...]:
        """Return the clang command that compiles an object with CUDA's ptxas."""
        isa = ptx_isa_for(arch, manifest.llvm.first, None)
        codegen = cuda_lowering.DeviceCodegen(arch, isa, manifest.opt_level, debug=manifest.debug)
        library = None
        if device.needs_libdevice:
            library = Path(manifest.libdevice or f"{_RECIPE_PLACE}/nvvm/libdevice/libdevice.10.bc")
        command = cuda_lowering.nvptx_object_command(
            clang, Path(device.file), output, codegen, library
        )
        return (*command.argv, f"--cuda-path={_RECIPE_PLACE}")

    def recipe_link(self, _manifest: MobManifest, /) -> tuple[str, str]:
        """Return PATH with CUDA's tools, and the options for its runtime library."""
        libraries = f'--cuda-path="{_RECIPE_CUDA}" -L"{_RECIPE_CUDA}/lib64" -lcudart_static -lrt '
        return f'PATH="{_RECIPE_CUDA}/bin:$PATH" ', libraries

    def bundle_needs(self, manifest: MobManifest, /) -> Iterator[str]:
        """Yield the required CUDA version, and libdevice if kernels call it."""
        major, minor = manifest.cuda or (0, 0)
        parts = "ptxas, nvlink, fatbinary, libcudart_static.a"
        yield f"CUDA {major}.{minor} or newer: {parts}; `CUDA_PATH` names it"
        limit = _plain_limit(manifest)
        if limit is not None:
            llvm, (cuda_major, cuda_minor) = limit
            yield (
                f"with clang alone, and older than LLVM {llvm}: a CUDA before {cuda_major}.{cuda_minor},"
                " whose fatbinary takes what that clang-linker-wrapper gives it; `mlir-offload link`"
                " takes any"
            )
        if manifest.needs_libdevice:
            yield "libdevice, which is part of CUDA: kernels call its math functions"

    def bundle_findings(
        self, path: Path, manifest: MobManifest, tools: LinkTools, /
    ) -> Iterator[Finding]:
        """Yield architectures that LLVM or CUDA do not support, and libdevice if it is called but missing."""
        return cuda_link.bundle_findings(path, manifest, tools)

    def doctor_choices(
        self, inventory: Inventory, releases: Sequence[LlvmToolchain], /
    ) -> Iterator[SdkChoice]:
        """Yield the complete CUDA toolkits."""
        return cuda_choice.cuda_choices(inventory, releases)

    def plain_link_arguments(self, major: int, sdk: Sdk | None, /) -> tuple[str, ...]:
        """Return the option for the path of the toolkit."""
        return load_abi(major).cuda_path_arguments(sdk.path) if sdk else ()

    def dummy_image_feature(self, context: BuildContext, target: Target, /) -> str:
        """Return the PTX ISA version as a target feature."""
        return _ptx_feature(context, (target.arch,))


KIND = _Cuda()
