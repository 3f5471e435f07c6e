"""The steps of a build that run under a launcher, each as a command that ccache can cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.device import compile_device, ordered_targets
from mlir_offload.driver.compile.kind_build import (
    DeviceModule,
    ImageFile,
    as_made,
    build_of,
    kernels_of,
)
from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.step.compiler_step import HostStep, ImageStep, ObjectStep
from mlir_offload.driver.step.image_container import image_libraries
from mlir_offload.driver.step.image_file import Unpack
from mlir_offload.driver.step.launcher import LaunchedSteps
from mlir_offload.driver.step.library_identity import library_identity
from mlir_offload.driver.step.split_file import ModuleFile, SplitFiles
from mlir_offload.driver.system.parallel import parallel_map
from mlir_offload.toolchain.errors import MlirOffloadError, ToolFailedError, VerificationError
from mlir_offload.toolchain.target import Target
from mlir_offload.translate.kernel import hermetic_text
from mlir_offload.translate.kind_lowering import form_of

T = TypeVar("T")


def launch_device(
    context: BuildContext, launched: LaunchedSteps, source: Path, modules: Sequence[ModuleFile]
) -> tuple[DeviceModule, ...]:
    """Compile every device module for every target, each pair in a separate step."""
    reason = _why_not(context, modules)
    if reason:
        name = launched.launcher.name
        show_note(f"the device code of {source} is compiled without {name}: {reason}")
        return compile_device(context, source, modules)
    tasks = [partial(_launch_module, context, launched, source, module) for module in modules]
    return _launch(
        lambda: tuple(parallel_map(tasks)),
        lambda: compile_device(context, source, modules),
        launched,
    )


def _why_not(context: BuildContext, modules: Sequence[ModuleFile]) -> str:
    """Return why the images cannot be made by separate steps; empty if they can."""
    if any(module.module.targets or module.objects for module in modules):
        return "targets or objects are attached to it"
    # A non-RDC object contains PTX, which a step does not return.
    return "with -fno-gpu-rdc it is linked at once" if context.options.makes_non_rdc_objects else ""


def launch_host_lowering(
    context: BuildContext,
    launched: LaunchedSteps,
    split: SplitFiles,
    output: Path,
    here: Callable[[], Path],
) -> Path:
    """Lower the host module to LLVM IR; `here` does the same in this process."""
    source = _hermetic_file(context, split.host)
    flags = _debug(context)
    step = HostStep(source=source, output=output, flags=flags, uses_async=split.uses_async)

    def launch() -> Path:
        context.executor.tool(launched.command(step, None), output)
        context.executor.programs.update(("mlir-opt", "mlir-translate"))
        return output

    return _launch(launch, here, launched)


def launch_object(
    context: BuildContext,
    launched: LaunchedSteps,
    source: Path,
    output: Path,
    here: Callable[[], None],
) -> None:
    """Compile the host module with the embedded images to an object; `here` does the same in this process."""
    options = context.options
    pic = ("-fPIC",) if options.pic or options.shared else ()
    flags = (options.opt_flag, *_debug(context), *_sanitizer(context), *pic)
    step = ObjectStep(source=source, output=output, flags=(*flags, *options.code_arguments))
    command = launched.command(step, None)
    _launch(partial(context.executor.tool, command, output), here, launched)
    context.executor.programs.add("clang")


def _launch(launch: Callable[[], T], here: Callable[[], object], launched: LaunchedSteps) -> T:
    """Run launched steps; if one fails, run `here`, which raises the error that it would have without a launcher.

    The input of a launched step has no source locations, so its own error would not help the user.
    """
    try:
        return launch()
    except (ToolFailedError, VerificationError) as error:
        here()
        raise _launcher_failed(error, launched) from error


def _launcher_failed(error: MlirOffloadError, launched: LaunchedSteps) -> ToolFailedError:
    msg = f"a step fails under the launcher '{launched.launcher.name}' only: {error.message}"
    setting = "the launcher's own setting"
    if launched.launcher.uses_ccache:
        setting = "ccache's setting, such as CCACHE_DIR, which it has to write"
    return ToolFailedError(
        msg,
        hint=f"look at {setting}, or build with --no-cache --launcher=",
        command=getattr(error, "command", ""),
        stderr=getattr(error, "stderr", ""),
    )


def _launch_module(
    context: BuildContext, launched: LaunchedSteps, source: Path, module: ModuleFile
) -> DeviceModule:
    targets = ordered_targets(context, module)
    files = dict.fromkeys(module.text_for(form_of(target)) for target in targets)
    texts = {file: _hermetic_file(context, file) for file in files}
    images = parallel_map(
        [
            partial(
                _launch_image,
                context,
                launched,
                module,
                texts[module.text_for(form_of(target))],
                target,
            )
            for target in targets
        ]
    )
    if not context.executor.dry_run:
        _note_libraries(context, source, images)
    return DeviceModule(module, _kernel_heads(images[0]), tuple(images))


def _launch_image(
    context: BuildContext, launched: LaunchedSteps, module: ModuleFile, source: Path, target: Target
) -> ImageFile:
    executor = context.executor
    build = build_of(target.kind)
    image = build.image_file(context, module.path, target)
    container = _container(image)
    flags = (
        f"--offload-arch={target}",
        f"-O{context.options.opt_level}",
        *_debug(context),
        *_sanitizer(context),
        *build.step_arguments(context),
        *context.options.device_flags.arguments,
        *(("-fgpu-rdc",) if context.options.gpu_rdc else ()),
    )
    step = ImageStep(
        source=source,
        output=container,
        flags=flags,
        kernels=kernels_of(module),
        needs=tuple(sorted(module.module.needs)),
        library_id=library_identity(context.options.device_flags.libraries, target),
        time=build.step_time(context),
    )
    executor.tool(launched.command(step, target.kind), container)
    executor.programs.update(build.step_programs)
    heads = _kernel_heads(image)
    executor.step(Unpack(source=container, kernel_heads=heads, output=image.path))
    return as_made(image)


def _note_libraries(context: BuildContext, source: Path, images: Sequence[ImageFile]) -> None:
    """Note as dependencies the device libraries that the images contain, by their path on this host."""
    names = {name for image in images for name in image_libraries(_container(image))}
    for given in context.options.device_flags.libraries:
        if given.path.name in names:
            context.dependencies.add(source, given.path)
    libdevice = context.cuda.libdevice if context.cuda else None
    if libdevice is not None and libdevice.name in names:
        context.dependencies.add(source, libdevice, is_system=True)
    if context.rocm is None or context.rocm.bitcode is None:
        return
    for library in (context.rocm.bitcode / name for name in sorted(names)):
        if library.is_file():
            context.dependencies.add(source, library, is_system=True)


def _container(image: ImageFile) -> Path:
    return image.path.with_suffix(".offload")


def _kernel_heads(image: ImageFile) -> Path:
    return image.path.with_suffix(".kernels.ll")


def _debug(context: BuildContext) -> tuple[str, ...]:
    return ("-g",) if context.options.debug else ()


def _sanitizer(context: BuildContext) -> tuple[str, ...]:
    return (context.options.sanitizer.flag,) if context.options.sanitizer else ()


def _hermetic_file(context: BuildContext, source: Path) -> Path:
    """Write the input of a step. Its extension `.i` tells ccache and distcc that it is preprocessed."""
    text = source.read_text(encoding="utf-8", errors="surrogateescape")
    hermetic = hermetic_text(text, keeps_locations=context.options.debug)
    output = source.with_suffix(".i")
    output.write_text(hermetic, encoding="utf-8", errors="surrogateescape")
    return output
