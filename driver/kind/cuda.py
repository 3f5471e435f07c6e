"""NVIDIA GPUs: device images, which are bitcode for the link or a cubin, and their link."""

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

# CUDA in the recipe of a bundle, and what represents it until the words are written for the shell.
_RECIPE_CUDA, _RECIPE_PLACE = "${CUDA_PATH:-/usr/local/cuda}", "@CUDA@"


def _make_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    """Make bitcode or a cubin, as asked; the latter too where the linking LLVM cannot take it."""
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
    """Make bitcode by the clang of the linking LLVM."""
    # Whether it can be is known then, in a dry run too.
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
    """Make a cubin, by the clang of the lowering LLVM where there is one."""
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
    """Return the PTX ISA for bitcode of these architectures, as clang spells a feature."""
    return f"+ptx{min(ptx_isa_for(arch, context.consumer, context.cuda) for arch in archs)}"


def _is_bitcode(context: BuildContext) -> bool:
    """Return whether the code is left for the link to generate.

    Bitcode is written by the linking LLVM alone; where that is not installed, by none.
    """
    if not context.releases.is_consumer_here:
        return False
    return context.cuda is None or context.options.device_code is DeviceCode.BITCODE


def _image_file(context: BuildContext, beside: Path, target: Target, /) -> ImageFile:
    """Return the image that is made for a target, its file next to another one."""
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
    """Return from which LLVM on a plain link takes every CUDA, and the first CUDA that older ones do not.

    None where each release that the bundle is for takes all.
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
        """Return the cubin, or the PTX that it is assembled from."""
        options = context.options
        wants_text = options.assembly and not options.emit_llvm
        return compile_kept_ptx.assembly_file(image) if wants_text else image.path

    def step_arguments(self, context: BuildContext, /) -> tuple[str, ...]:
        """Return the form of the code."""
        form = DeviceCode.BITCODE if _is_bitcode(context) else DeviceCode.OBJECT
        return (f"--device-code={form.value}",)

    def step_time(self, context: BuildContext, /) -> int:
        """Return the time that is written into line tables, which no cache may miss."""
        is_written = context.options.debug and not _is_bitcode(context)
        return context.source_time if is_written else 1

    def assemble(
        self, context: BuildContext, source: Path, given: ObjectFile, target: Target, image: Path, /
    ) -> tuple[Command, ImageFile]:
        """Return how PTX becomes a cubin."""
        # What is known of its lines came with it.
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
        """Make a fat binary of cubins and PTX."""
        cuda = _toolkit_for_given(context, source)
        context.executor.tool(cuda_link.fat_binary_command(cuda, chosen, ptx, output), output)

    def cpp_arguments(self, context: BuildContext, /) -> tuple[str, ...]:
        """Return where CUDA lies."""
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
        """Make a directory with the tools of CUDA, wherever they lie."""
        cuda_link.make_directory(context, directory, source, device)

    def link_arguments(
        self, context: BuildContext, archs: Collection[str], directory: Path, /
    ) -> tuple[str, ...]:
        """Return where the tools are, and how bitcode is compiled."""
        abi, level = load_abi(context.consumer), context.options.opt_level
        # Objects whose device code is linked already leave nothing to compile.
        feature = _ptx_feature(context, archs) if archs else ""
        return (
            *abi.cuda_path_arguments(directory),
            *abi.device_opt_arguments(NVPTX_TRIPLE, level),
            *(abi.device_feature_arguments(NVPTX_TRIPLE, feature) if archs else ()),
        )

    def link_folders(self, _context: BuildContext, directory: Path, /) -> tuple[Path, ...]:
        """Return the tools of CUDA: the clang of LLVM 19 looks for ptxas where there is bitcode."""
        return (directory / "bin",)

    def bundled_ir(
        self, consumer: int, text: Path, kernels: tuple[str, ...], output: Path, /
    ) -> NvptxIr:
        """Return the step that marks the kernels."""
        return NvptxIr(source=text, kernels=kernels, llvm=consumer, output=output)

    def calls_library(self, text: str, /) -> bool:
        """Return whether it calls libdevice."""
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
        """Return the call of clang that makes an object by the ptxas of CUDA."""
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
        """Return the tools and the library of CUDA."""
        libraries = f'--cuda-path="{_RECIPE_CUDA}" -L"{_RECIPE_CUDA}/lib64" -lcudart_static -lrt '
        return f'PATH="{_RECIPE_CUDA}/bin:$PATH" ', libraries

    def bundle_needs(self, manifest: MobManifest, /) -> Iterator[str]:
        """Yield the CUDA that knows the architectures, and libdevice."""
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
        """Yield what LLVM and CUDA do not know, and libdevice where it is called and not here."""
        return cuda_link.bundle_findings(path, manifest, tools)

    def doctor_choices(
        self, inventory: Inventory, releases: Sequence[LlvmToolchain], /
    ) -> Iterator[SdkChoice]:
        """Yield the complete toolkits."""
        return cuda_choice.cuda_choices(inventory, releases)

    def plain_link_arguments(self, major: int, sdk: Sdk | None, /) -> tuple[str, ...]:
        """Return where the toolkit is."""
        return load_abi(major).cuda_path_arguments(sdk.path) if sdk else ()

    def dummy_image_feature(self, context: BuildContext, target: Target, /) -> str:
        """Return the PTX ISA."""
        return _ptx_feature(context, (target.arch,))


KIND = _Cuda()
