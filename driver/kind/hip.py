"""Device images for AMD GPUs, and their link."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.driver.compile.downgrade import not_taken
from mlir_offload.driver.compile.kind_build import (
    CppLanguage,
    ImageFile,
    KindBuild,
    LinkTools,
    Sdk,
    SdkChoice,
    kernels_of,
    user_libraries,
    with_libraries,
)
from mlir_offload.driver.option.compile_options import DeviceCode
from mlir_offload.driver.step.hip import AmdgpuCheck, AmdgpuIr, HipFatBinary
from mlir_offload.driver.step.split_file import ObjectFile
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.device import amdgpu_processor
from mlir_offload.offload.device import library as device_library
from mlir_offload.offload.kind.hip import loads_hip
from mlir_offload.offload.link import finding
from mlir_offload.toolchain.amdgpu import check_features, lowering_chip
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError, ToolchainError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.rocm import (
    DeviceMath,
    choose_code_object,
    common_code_object,
    device_libraries,
    device_library_names,
    load_rocm_table,
)
from mlir_offload.toolchain.target import AMDGPU_TRIPLE, Kind, device_kind
from mlir_offload.translate.kind.hip import (
    AmdgpuCodegen,
    amdgpu_image_command,
    needs_device_libraries,
)
from mlir_offload.translate.kind_lowering import TargetAttribute, attribute_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlir_offload.driver.compile.context import BuildContext
    from mlir_offload.driver.option.compile_options import DeviceFlags
    from mlir_offload.driver.step.split_file import ModuleFile
    from mlir_offload.offload.container.mob_manifest import MobDevice, MobManifest
    from mlir_offload.toolchain.inventory import Inventory
    from mlir_offload.toolchain.llvm import LlvmToolchain
    from mlir_offload.toolchain.target import Target


# ROCm in the recipe of a bundle, as a shell expression, and the placeholder of its libraries in the commands.
_RECIPE_ROCM, _RECIPE_PLACE = "${ROCM_PATH:-/opt/rocm}", "@ROCM@"
_RECIPE_LIBRARIES = f"${{HIP_DEVICE_LIB_PATH:-{_RECIPE_ROCM}/amdgcn/bitcode}}"


class _HipImage(Struct, frozen=True):
    """An image to make: its path, GPU, target attribute, libraries to link, and kernels."""

    path: Path
    target: Target
    attached: TargetAttribute
    libraries: tuple[Path, ...]
    kernels: tuple[str, ...]


def _make_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    """Make the image of a device module that was lowered for an AMD GPU."""
    image = _image_file(context, lowered, target)
    own = attribute_for(module.module.targets, target) or TargetAttribute(target.kind)
    libraries = user_libraries(context, source, target, lowered, own.link)
    made = _HipImage(image.path, target, own, libraries, kernels_of(module))
    _make_code(context, source, lowered, made)
    return image


def _make_code(context: BuildContext, source: Path, lowered: Path, image: _HipImage) -> None:
    """Make an image of a lowered module for an AMD GPU.

    Raises ToolchainError if a kernel needs device libraries that are not installed.
    """
    _check_form(context)
    executor, flags, path = context.executor, context.options.device_flags, image.path
    arch, own = image.target.arch, image.attached
    check_features(arch, (*own.all_features, *flags.device_opt_for(arch)))
    wanted = own.code_object or flags.code_object
    version = choose_code_object(context.consumer, context.rocm, arch, wanted)
    ready = path.with_name(f"{path.stem}.ready.ll")
    math = _device_math(flags, own.flags)
    executor.step(
        AmdgpuIr(
            source=context.text_for(context.llvm.version.major, lowered, source),
            kernels=image.kernels,
            rdc=bool(context.options.gpu_rdc),
            ftz=math.flushes_denormals,
            llvm=context.consumer,
            code_object=version,
            output=ready,
        )
    )
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
        arguments=(*own.feature_arguments, *_flushing(math), *flags.device_opt_for(arch)),
    )
    command = amdgpu_image_command(context.llvm, prepared, path, codegen)
    executor.tool(command, path, diagnose=partial(not_taken, context))
    if rocm:
        names = tuple(map(str, rocm))
        check = AmdgpuCheck(source=path, arch=arch, libraries=names, location=str(source))
        executor.step(check)


def _check_form(context: BuildContext) -> None:
    options = context.options
    if options.gpu_rdc and options.device_code is DeviceCode.OBJECT:
        msg = "-fgpu-rdc: an object for an AMD GPU does not say which registers its functions use"
        hint = "use --device-code=bitcode: the link then compiles kernels and functions together"
        raise CompatibilityError(msg, hint=hint)


def _device_math(flags: DeviceFlags, attached: Sequence[str]) -> DeviceMath:
    """Return the floating-point assumptions of the command line and of the target attribute."""
    fast = flags.fast_math or "fast" in attached
    return DeviceMath(
        flushes_denormals=flags.ftz or not {"daz", "ftz"}.isdisjoint(attached),
        finite_only=fast or "finite_only" in attached,
        unsafe=fast or "unsafe_math" in attached,
        rounds_sqrt_correctly="unsafe_sqrt" not in attached,
    )


def _flushing(math: DeviceMath) -> tuple[str, ...]:
    """Return options that make library functions flush denormals if the kernels that call them do."""
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
    """Return ROCm's device libraries. Raises ToolchainError if missing, CompatibilityError if unreadable."""
    if context.rocm is None or context.rocm.bitcode is None:
        msg = "a kernel calls functions of ROCm's device libraries, which were not found"
        hint = f"apt install {load_rocm_table().package}, or name a ROCm folder with --rocm-path="
        raise ToolchainError(msg, hint=hint, location=str(source))
    libraries = device_libraries(context.rocm, target.arch, version, math)
    for library in libraries:
        device_library.check_library(library, target, context.consumer)
    return libraries


def _image_file(context: BuildContext, beside: Path, target: Target, /) -> ImageFile:
    """Return the image for a target, with a path next to `beside`."""
    is_code = context.options.device_code is DeviceCode.OBJECT
    ending = "o" if is_code or not context.releases.is_consumer_here else "bc"
    stem = beside.stem.removesuffix(f".{lowering_chip(target.arch)}")
    name = f"{stem}.{target.arch.replace(':', '.')}.{ending}"
    return ImageFile(beside.with_name(name), target)


class _Hip(KindBuild):
    name = Kind.HIP
    modules = (
        "mlir_offload.driver.step.device",
        "mlir_offload.driver.step.hip",
        "mlir_offload.translate.kind.hip",
    )
    cpp = CppLanguage(
        "HIP C++", "GPUs of AMD's", "name an architecture of AMD's with --offload-arch=gfxNNN"
    )
    bundle_ending = "amdgpu"
    bundles_final_code = True
    recipe_places = {_RECIPE_PLACE: _RECIPE_LIBRARIES}  # noqa: RUF012 (a table)
    image_file = staticmethod(_image_file)
    make_image = staticmethod(_make_image)
    code_ending = ".hsaco"
    fat_binary_ending = ".hipfb"

    def code_alone(self, context: BuildContext, image: ImageFile, /) -> Path:
        """Return a linked code object, as the HIP runtime loads it; text and LLVM IR are returned unchanged."""
        options = context.options
        if options.assembly or options.emit_llvm or options.gpu_rdc:
            return image.path
        output = image.path.with_suffix(".hsaco")
        argv = (str(context.llvm.tool("ld.lld")), "-shared", "--no-undefined", str(image.path))
        context.executor.tool(Command((*argv, "-o", str(output))), output)
        return output

    def step_arguments(self, context: BuildContext, /) -> tuple[str, ...]:
        """Return the format of the code."""
        return (f"--device-code={context.options.device_code.value}",)

    def assemble(
        self,
        context: BuildContext,
        _source: Path,
        given: ObjectFile,
        target: Target,
        image: Path,
        /,
    ) -> tuple[Command, ImageFile]:
        """Return the command that assembles an object."""
        clang = str(context.llvm.tool("clang"))
        flags = (f"--target={target.triple}", f"-mcpu={target.arch}", "-c", "-x", "assembler")
        command = Command((clang, *flags, str(given.path), "-o", str(image)))
        return command, ImageFile(image, target)

    def pack(
        self,
        context: BuildContext,
        _source: Path,
        chosen: Sequence[tuple[Target, Path]],
        output: Path,
        /,
        ptx: Sequence[tuple[Target, Path]] = (),
    ) -> None:
        """Write a bundle of code objects, in clang-offload-bundler's format."""
        del ptx
        images = tuple(ImageFile(path, target).packaged for target, path in chosen)
        step = HipFatBinary(images=images, for_clang=context.consumer, output=output)
        context.executor.step(step)

    def cpp_arguments(self, context: BuildContext, /) -> tuple[str, ...]:
        """Return the paths of ROCm, and the code object version, which must be the same for all linked code."""
        rocm = context.rocm
        versions = {
            choose_code_object(context.consumer, rocm, target.arch)
            for target in context.targets_of(self.name)
        }
        bitcode = (f"--rocm-device-lib-path={rocm.bitcode}",) if rocm and rocm.bitcode else ()
        path = (f"--rocm-path={rocm.root}",) if rocm else ()
        return (*path, *bitcode, f"-mcode-object-version={max(versions)}")

    def runtime_library(self, context: BuildContext, /) -> Path | None:
        """Return libamdhip64.so."""
        return context.rocm.runtime if context.rocm else None

    def link_arguments(
        self, context: BuildContext, _archs: Collection[str], _directory: Path, /
    ) -> tuple[str, ...]:
        """Return the options for compiling bitcode."""
        abi = load_abi(context.consumer)
        return abi.device_opt_arguments(AMDGPU_TRIPLE, context.options.opt_level)

    def bundled_ir(
        self, consumer: int, text: Path, kernels: tuple[str, ...], output: Path, /
    ) -> AmdgpuIr:
        """Return the step that marks the kernels, for all AMD GPUs among the targets."""
        version = common_code_object(consumer)
        return AmdgpuIr(
            source=text, kernels=kernels, llvm=consumer, code_object=version, output=output
        )

    def calls_library(self, text: str, /) -> bool:
        """Return whether the IR calls ROCm's device libraries."""
        return needs_device_libraries(text)

    def recipe_call(
        self,
        manifest: MobManifest,
        clang: LlvmToolchain,
        device: MobDevice,
        arch: str,
        output: Path,
        /,
    ) -> tuple[str, ...]:
        """Return the clang command that compiles an object, with ROCm's device libraries."""
        libraries: tuple[Path, ...] = ()
        if device.needs_libdevice:
            version = common_code_object(manifest.llvm.first)
            names = device_library_names(arch, version, DeviceMath())
            libraries = tuple(Path(f"{_RECIPE_PLACE}/{name}.bc") for name in names)
        level, debug = manifest.opt_level, manifest.debug
        codegen = AmdgpuCodegen(arch, level, debug=debug, libraries=libraries)
        return amdgpu_image_command(clang, Path(device.file), output, codegen).argv

    def recipe_link(self, manifest: MobManifest, /) -> tuple[str, str]:
        """Return the options for the HIP runtime, unless the program loads it at run time."""
        if loads_hip(manifest.kinds):
            return "", ""
        return "", f'-L"{_RECIPE_ROCM}/lib" -Wl,-rpath,"{_RECIPE_ROCM}/lib" -lamdhip64 '

    def bundle_needs(self, manifest: MobManifest, /) -> Iterator[str]:
        """Yield the HIP runtime and ROCm's device libraries."""
        when = "to run on an AMD GPU" if loads_hip(manifest.kinds) else "to link"
        yield f"the HIP runtime, libamdhip64.so, {when}; `ROCM_PATH` names ROCm"
        if manifest.calls_library(self.name):
            yield (
                "ROCm's device libraries, with clang alone those of ROCm 5 or 6: kernels call them;"
                " `HIP_DEVICE_LIB_PATH` names their directory"
            )

    def bundle_findings(
        self, path: Path, manifest: MobManifest, tools: LinkTools, /
    ) -> Iterator[finding.Finding]:
        """Yield processors that LLVM or ROCm do not support, and device libraries that are called but missing."""
        llvm, rocm = tools.llvm, tools.rocm
        for arch in manifest.archs(self.name):
            if llvm is None:
                break
            try:
                amdgpu_processor.check_processor(arch, llvm.version.major)
                choose_code_object(llvm.version.major, rocm, arch)
            except MlirOffloadError as error:
                yield finding.Finding(error.message, str(path), error.hint, type(error))
        if manifest.calls_library(self.name) and (rocm is None or rocm.bitcode is None):
            message = "kernels call ROCm's device libraries, which are not installed"
            hint = (
                f"apt install {load_rocm_table().package}, or name a ROCm folder with --rocm-path="
            )
            yield finding.Finding(message, str(path), hint, ToolchainError)

    def doctor_choices(
        self, inventory: Inventory, _releases: Sequence[LlvmToolchain], /
    ) -> Iterator[SdkChoice]:
        """Yield the installations of ROCm's device libraries."""
        for number, libs in enumerate(inventory.rocm):
            name = f"ROCm {libs.version}" if libs.version else "ROCm device libraries"
            sdk = Sdk(name, libs.root, "--rocm-path=")
            yield SdkChoice(sdk, device_kind(self.name).example, number == 0)


KIND = _Hip()
