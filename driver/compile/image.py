"""Device images on disk: which module makes one for which target, their form, and the libraries of their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.step.split_file import ModuleFile
from mlir_offload.driver.step.step import PackagedImage, Step, read_text
from mlir_offload.offload.device import library
from mlir_offload.toolchain.errors import InputOutputError, SourceError
from mlir_offload.toolchain.target import Target, device_kind
from mlir_offload.translate import gpu_module, kernel_parameter
from mlir_offload.translate.device_ir import calls_others
from mlir_offload.translate.target_attribute import compatible_targets


def targets_for(context: BuildContext, module: ModuleFile) -> tuple[Target, ...]:
    """Return the targets of the build that a module is compiled for, or holds code for."""
    if module.objects:
        return tuple(
            target
            for target in context.targets
            if any(one.image.is_compatible(target) for one in module.objects)
        )
    left = (target for target in context.targets if target.kind not in module.module.leaves)
    return compatible_targets(module.module.targets, left)


def select_modules(
    context: BuildContext, source: Path, modules: Sequence[ModuleFile]
) -> tuple[ModuleFile, ...]:
    """Return the modules that are compiled for anything at all.

    Raises SourceError for a kernel that no module has for one of the targets.
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
    """A device image on disk; `ptx` is what it was assembled from where the user gave that.

    One that `is_linked` needs no device link: the linker wrapper packs it as it is.
    """

    path: Path
    target: Target
    feature: str = ""
    ptx: Path | None = None
    is_linked: bool = False

    @property
    def packaged(self) -> PackagedImage:
        """Return the image as the packager takes it."""
        kind = device_kind(self.target.kind).offload_kind
        return PackagedImage(self.path, self.target.triple, self.target.arch, kind, self.feature)


class DeviceModule(Struct, frozen=True):
    """What becomes of one device module: LLVM IR that tells the kernels' types, and images.

    `linked_images` are those that no device link takes, one for each kind.
    """

    module: ModuleFile
    ir: Path
    images: tuple[ImageFile, ...]
    linked_images: tuple[ImageFile, ...] = ()


def kernels_of(module: ModuleFile) -> tuple[str, ...]:
    """Return the symbols of the kernels of a module."""
    return tuple(kernel.symbol for kernel in module.module.kernels)


def run_on_kernels(context: BuildContext, module: ModuleFile, step: Step) -> None:
    """Run a step on the LLVM IR of a module; its error about a parameter gets the place of the kernel."""
    try:
        context.executor.step(step)
    except kernel_parameter.ParameterTypeError as error:
        text = read_text(module.path)
        error.location = gpu_module.place_of_kernel(text, error.kernel) or error.location
        raise


def as_made(image: ImageFile) -> ImageFile:
    """Return an image that a step of its own made, as what it is: bitcode, or a linked device image instead."""
    if image.path.suffix != ".bc" or not image.path.exists():
        return image
    with image.path.open("rb") as stream:
        if stream.read(4) == b"BC\xc0\xde":
            return image
    return ImageFile(image.path.rename(image.path.with_suffix(".o")), image.target)


def user_libraries(
    context: BuildContext,
    source: Path,
    target: Target,
    lowered: Path,
    attached: Sequence[str] = (),
) -> tuple[Path, ...]:
    """Return the libraries of the user for a lowered module that calls functions, after a check of each.

    `attached` are those of the module, which the program names from its own directory. A module that
    calls no function of others depends on no library.
    """
    chosen = [
        item.path for item in context.options.device_flags.libraries if item.is_compatible(target)
    ]
    chosen += [source.parent / name for name in attached]
    for path in chosen:
        if not path.is_file():
            msg = f"{path}: no such file"
            raise InputOutputError(msg, hint="check the name of the device library")
    if not chosen or not calls_others(lowered.read_text(encoding="utf-8")):
        return ()

    for path in chosen:
        library.check_library(path, target, context.consumer)
        context.dependencies.add(source, path, target=str(target))
    return tuple(chosen)
