"""The interface between the driver and each device kind.

It takes device modules and returns device images on disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.driver.compile import device_library
from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.step.step import PackagedImage, Step, read_text
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Kind, Registry, Target, all_kinds, device_kind
from mlir_offload.translate import gpu_module, kind_lowering
from mlir_offload.translate import kernel as translate_kernel
from mlir_offload.translate.kind import cuda as kind_cuda

if TYPE_CHECKING:
    from mlir_offload.driver.step.split_file import ModuleFile, ObjectFile
    from mlir_offload.offload.container.mob_manifest import MobDevice, MobManifest
    from mlir_offload.offload.link.finding import Finding
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.inventory import Inventory
    from mlir_offload.toolchain.llvm import LlvmToolchain
    from mlir_offload.toolchain.process import Command
    from mlir_offload.toolchain.rocm import RocmInstallation


def targets_for(context: BuildContext, module: ModuleFile) -> tuple[Target, ...]:
    """Return the targets of the build that a module is compiled for, or has precompiled code for."""
    if module.objects:
        return tuple(
            target
            for target in context.targets
            if any(one.image.is_compatible(target) for one in module.objects)
        )
    left = (target for target in context.targets if target.kind not in module.module.leaves)
    return kind_lowering.compatible_targets(module.module.targets, left)


def select_modules(
    context: BuildContext, source: Path, modules: Sequence[ModuleFile]
) -> tuple[ModuleFile, ...]:
    """Return the modules that are compiled for at least one target.

    Raises SourceError for a kernel that no module provides for one of the targets.
    """
    held = {
        (kernel.symbol, target)
        for module in modules
        for target in targets_for(context, module)
        for kernel in module.module.kernels
    }
    for module in modules:
        for kernel in module.module.kernels:
            lacking = [target for target in context.targets if (kernel.symbol, target) not in held]
            if lacking:
                raise _incompatible(module, kernel.name, lacking[0], source)
    return tuple(module for module in modules if targets_for(context, module))


def _incompatible(module: ModuleFile, kernel: str, target: Target, source: Path) -> SourceError:
    if module.objects:
        held = ", ".join(dict.fromkeys(one.image.made_for for one in module.objects))
        wanted = "the CPU" if target.is_cpu else str(target)
        msg = f"{module.title} with kernel @{kernel} holds code for {held}, none for {wanted}"
        hint = (
            "choose that by --offload-arch=, or give the gpu.module that it was made from, which is "
            "compiled for every target"
        )
        return SourceError(msg, hint=hint, location=str(source))
    chips = ", ".join(sorted({item.chip for item in module.module.targets if item.chip}))
    msg = f"gpu.module @{module.module.name} with kernel @{kernel} is attached to {chips}, not {target}"
    hint = f"attach {target} too, leave it out of --offload-arch, or add a variant of the module for it"
    return SourceError(msg, hint=hint, location=str(source))


class ImageFile(Struct, frozen=True):
    """A device image on disk. `ptx` is the PTX that it was assembled from, if the program contained it.

    If `is_linked`, it needs no device link: the linker wrapper packs it unchanged.
    """

    path: Path
    target: Target
    feature: str = ""
    ptx: Path | None = None
    is_linked: bool = False

    @property
    def packaged(self) -> PackagedImage:
        """Return the image as the packager expects it."""
        kind = device_kind(self.target.kind).offload_kind
        return PackagedImage(self.path, self.target.triple, self.target.arch, kind, self.feature)


class DeviceModule(Struct, frozen=True):
    """A compiled device module: LLVM IR from which the kernel signatures are read, and its images.

    `linked_images` are images that the device link would drop, one per kind.
    """

    module: ModuleFile
    ir: Path
    images: tuple[ImageFile, ...]
    linked_images: tuple[ImageFile, ...] = ()


def kernels_of(module: ModuleFile) -> tuple[str, ...]:
    """Return the symbols of the kernels of a module."""
    return tuple(kernel.symbol for kernel in module.module.kernels)


def run_on_kernels(context: BuildContext, module: ModuleFile, step: Step) -> None:
    """Run a step on the LLVM IR of a module; locate an error about a parameter at its kernel."""
    try:
        context.executor.step(step)
    except translate_kernel.ParameterTypeError as error:
        text = read_text(module.path)
        error.location = gpu_module.place_of_kernel(text, error.kernel) or error.location
        raise


def as_made(image: ImageFile) -> ImageFile:
    """Return an image made by a separate step, which may be a linked device image instead of bitcode."""
    if image.path.suffix != ".bc" or not image.path.exists():
        return image
    with image.path.open("rb") as stream:
        if stream.read(4) == b"BC\xc0\xde":
            return image
    return ImageFile(image.path.rename(image.path.with_suffix(".o")), image.target)


def user_libraries(
    context: BuildContext, source: Path, target: Target, lowered: Path, attached: Sequence[str] = ()
) -> tuple[Path, ...]:
    """Return the checked libraries of the user for a lowered module; none if it calls no external function.

    `attached` are the libraries of the target attribute, relative to the directory of the program.
    """
    given = context.options.device_flags.libraries
    chosen = [item.path for item in given if item.is_compatible(target)]
    chosen += [source.parent / name for name in attached]
    if not chosen:
        return ()
    return device_library.check_libraries(context, source, target, lowered, chosen)


def with_libraries(
    context: BuildContext, llvm: LlvmToolchain, source: Path, libraries: Sequence[Path]
) -> tuple[Path, tuple[Path, ...]]:
    """Return the input of clang and the libraries that it links in; llvm-link links them before if clang cannot."""
    if not libraries or kind_cuda.links_library_into_ir(llvm.version.major):
        return source, tuple(libraries)
    return device_library.link_in(context, llvm, source, libraries), ()


class CppLanguage(Struct, frozen=True):
    """C++ with kernels of a kind: its name, the vendor's GPUs, and a hint how to select one."""

    name: str
    gpus: str
    hint: str


class Sdk(Struct, frozen=True):
    """Software of a vendor besides LLVM: a CUDA toolkit, or the ROCm device libraries."""

    name: str
    path: Path
    option: str
    cuda: CudaToolkit | None = None


class SdkChoice(Struct, frozen=True):
    """An SDK that a kind may use, the architecture to compile for, and whether it is the default."""

    sdk: Sdk | None
    arch: str
    is_default: bool


class LinkTools(Struct, frozen=True):
    """The tools on this host for linking bundles, and the problems found with them."""

    llvm: LlvmToolchain | None
    cuda: CudaToolkit | None
    rocm: RocmInstallation | None
    findings: tuple[Finding, ...] = ()


class KindBuild:
    """What compiling and linking for a device kind requires; the modules in `kind/` implement it."""

    name: Kind
    modules: tuple[str, ...] = ()
    """Modules that a compilation imports late, so that they can be loaded while the first tools run."""
    link_modules: tuple[str, ...] = ()
    """The same for a link."""
    step_programs: tuple[str, ...] = ("mlir-opt", "mlir-translate", "clang")
    """The programs that the step for an image runs."""
    bundle_ending = ""
    """The extension of the kind's device code in a bundle."""
    bundles_final_code = False
    """Whether kernel arguments are read from the LLVM IR in the bundle, not from the IR before its preparation."""
    is_run_by_doctor = False
    """Whether `doctor` runs a program of the kind if a device is present."""
    recipe_makes: tuple[str, ...] = ()
    """The files that the preparation of a recipe may write."""
    recipe_places: Mapping[str, str] = {}
    """Placeholders for directories in the commands of a recipe, and the shell expressions that replace them."""
    cpp: CppLanguage | None = None
    """The C++ dialect with kernels of this kind."""
    code_ending = ".o"
    fat_binary_ending = ""
    """The extension of a fat binary that a driver API or a linker reads; empty if there is none."""

    def image_file(self, context: BuildContext, beside: Path, target: Target, /) -> ImageFile:
        """Return the image for a target, with a path next to `beside`."""
        raise NotImplementedError

    def prepare(self, context: BuildContext) -> None:
        """Make the files that all images of the kind need."""

    def make_image(
        self,
        context: BuildContext,
        source: Path,
        module: ModuleFile,
        lowered: Path,
        target: Target,
    ) -> ImageFile:
        """Make the image of a lowered device module."""
        raise NotImplementedError

    def code_alone(self, _context: BuildContext, image: ImageFile, /) -> Path:
        """Return the code of an image as a separate file: assembly with -S."""
        return image.path

    def step_arguments(self, _context: BuildContext, /) -> tuple[str, ...]:
        """Return the arguments of an image step that affect the code."""
        return ()

    def step_time(self, _context: BuildContext, /) -> int:
        """Return the timestamp that an image step writes; 1 if it writes none."""
        return 1

    def assemble(
        self, context: BuildContext, source: Path, given: ObjectFile, target: Target, image: Path, /
    ) -> tuple[Command, ImageFile]:
        """Return the command that assembles a precompiled assembly file, and the resulting image."""
        raise NotImplementedError

    def pack(
        self,
        context: BuildContext,
        source: Path,
        chosen: Sequence[tuple[Target, Path]],
        output: Path,
        /,
        ptx: Sequence[tuple[Target, Path]] = (),
    ) -> None:
        """Pack linked objects, and PTX if the format can contain it, into the container that the runtime loads."""
        raise NotImplementedError

    def cpp_arguments(self, _context: BuildContext, /) -> tuple[str, ...]:
        """Return the arguments that clang needs to compile the C++ of the kind."""
        return ()

    def runtime_library(self, _context: BuildContext, /) -> Path | None:
        """Return the library that launches the kernels; None if it is missing or not needed."""
        return None

    def prepare_link(
        self,
        context: BuildContext,
        directory: Path,
        source: Path | None = None,
        device: Sequence[DeviceModule] = (),
    ) -> None:
        """Create a directory with the programs that the device link runs.

        `device` are the modules that this invocation compiled; those of `source` if it is linked separately.
        """

    def link_arguments(
        self, _context: BuildContext, _archs: Collection[str], _directory: Path, /
    ) -> tuple[str, ...]:
        """Return the arguments of the linker wrapper for linking images of these architectures."""
        return ()

    def link_folders(self, _context: BuildContext, _directory: Path, /) -> tuple[Path, ...]:
        """Return the directories in which the wrapper's clang searches programs before PATH."""
        return ()

    def lower_bundled(
        self, context: BuildContext, source: Path, module: ModuleFile, lowered: Path
    ) -> Path:
        """Return the LLVM IR of a lowered module for a bundle, with its target and with its kernels marked."""
        text = context.text_for(context.consumer, lowered, source)
        path = lowered.with_suffix(f".{self.bundle_ending}.ll")
        step = self.bundled_ir(context.consumer, text, kernels_of(module), path)
        context.executor.step(step)
        return path

    def bundled_ir(
        self, _consumer: int, _text: Path, _kernels: tuple[str, ...], _output: Path, /
    ) -> Step:
        """Return the step that writes the LLVM IR for a bundle."""
        raise NotImplementedError

    def bundled_image(
        self, context: BuildContext, bundle: Path, module: ModuleFile, target: Target, /
    ) -> ImageFile:
        """Make the image of a device module of a bundle."""
        return self.make_image(context, bundle, module, module.path, target)

    def calls_library(self, _text: str, /) -> bool:
        """Return whether LLVM IR calls the vendor's device library."""
        return False

    def recipe_preparation(
        self, _manifest: MobManifest, _clang: LlvmToolchain, /
    ) -> Iterator[tuple[str, ...]]:
        """Yield the clang commands at the start of a bundle's recipe."""
        return iter(())

    def recipe_files(self, _manifest: MobManifest, /) -> tuple[str, ...]:
        """Return the objects that the preparation writes and that are packaged as images."""
        return ()

    def recipe_call(
        self,
        manifest: MobManifest,
        clang: LlvmToolchain,
        device: MobDevice,
        arch: str,
        output: Path,
        /,
    ) -> tuple[str, ...]:
        """Return the clang command that makes an image, for the recipe of a bundle."""
        raise NotImplementedError

    def recipe_link(self, _manifest: MobManifest, /) -> tuple[str, str]:
        """Return, as shell text, the prefix of the last command of a recipe, and its libraries."""
        return "", ""

    def bundle_needs(self, _manifest: MobManifest, /) -> Iterator[str]:
        """Yield the requirements of a bundle on the link host, as text for its README."""
        return iter(())

    def bundle_findings(
        self, _path: Path, _manifest: MobManifest, _tools: LinkTools, /
    ) -> Iterator[Finding]:
        """Yield what is missing on this host to link a bundle."""
        return iter(())

    def doctor_choices(
        self, _inventory: Inventory, _releases: Sequence[LlvmToolchain], /
    ) -> Iterator[SdkChoice]:
        """Yield the SDKs of this host to test; `SdkChoice(None, ...)` for a kind that needs none."""
        yield SdkChoice(None, device_kind(self.name).example, is_default=True)

    def plain_link_arguments(self, _major: int, _sdk: Sdk | None, /) -> tuple[str, ...]:
        """Return the arguments that plain clang of a release needs to link images of the kind."""
        return ()

    def dummy_image_feature(self, _context: BuildContext, _target: Target, /) -> str:
        """Return the target feature with which an empty image is compiled."""
        return ""


BUILDS = Registry[KindBuild]("driver")


def build_of(kind: Kind) -> KindBuild:
    """Return the implementation for a device kind."""
    return BUILDS[kind]


def builds_of(kinds: Collection[Kind]) -> Iterator[KindBuild]:
    """Yield the implementations for several kinds, in the order of all kinds."""
    return (BUILDS[kind] for kind in all_kinds() if kind in kinds)


def runtime_libraries(context: BuildContext, kinds: Collection[Kind]) -> Mapping[Kind, Path | None]:
    """Return the libraries that launch kernels, by kind."""
    return {build.name: build.runtime_library(context) for build in builds_of(kinds)}
