"""Device images for the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.image import (
    ImageFile,
    image_file,
    kernel_options,
    rdc_option,
    sanitize_option,
    user_libraries,
)
from mlir_offload.driver.compile.older import not_taken, older_text, with_libraries
from mlir_offload.driver.compile.split_file import ModuleFile
from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.step.cpu import unsplit
from mlir_offload.offload.llvm_ir import is_written_in_process
from mlir_offload.toolchain.target import Target


def make_cpu_image(
    context: BuildContext, source: Path, module: ModuleFile, lowered: Path, target: Target
) -> ImageFile:
    """Make the image of a lowered module for the CPU that this is."""
    libraries = user_libraries(context, source, target, lowered)
    prepared = cpu_ir(context, source, module, lowered, libraries)
    prepared = older_text(context, prepared, context.llvm.version.major, str(source))
    return finish_cpu_image(context, prepared, image_file(context, lowered, target), libraries)


def finish_cpu_image(
    context: BuildContext, prepared: Path, image: ImageFile, libraries: Sequence[Path] = ()
) -> ImageFile:
    """Compile what `cpu_ir` made, with the device runtime and the libraries that it calls."""
    from mlir_offload.translate.cpu.module import cpu_image_command
    from mlir_offload.translate.device_ir import LINK_LIBRARY

    executor, llvm, options = context.executor, context.llvm, context.options
    wanted = (_device_runtime(context), *libraries)
    prepared, left = with_libraries(context, llvm, prepared, wanted)
    runtime, others = next(iter(left), None), left[1:]
    linked = (word for path in others for word in ("-Xclang", LINK_LIBRARY, "-Xclang", str(path)))
    sanitizer = (options.sanitizer.flag,) if options.sanitizer else ()
    debug = ("-g",) if options.debug else ()
    extra = (*debug, *sanitizer, *linked, *options.device_flags.device_opt)
    level = options.opt_level
    command = cpu_image_command(
        llvm, prepared, runtime, image.path, opt_level=level, march=options.march, extra=extra
    )
    executor.tool(command, image.path, diagnose=partial(not_taken, context))
    return image


def _device_runtime(context: BuildContext) -> Path:
    return context.workspace / "cpu_device.bc"


def compile_device_runtime(context: BuildContext) -> None:
    """Compile what every image for the CPU takes in, once for all of them."""
    from mlir_offload.translate.cpu.module import cpu_runtime_command

    executor, output = context.executor, _device_runtime(context)
    options = context.options
    extra = options.sanitizer.runtime_flags if options.sanitizer else ()
    command = cpu_runtime_command(
        context.llvm, output, opt_level=options.opt_level, march=options.march, extra=extra
    )
    executor.once(output, partial(executor.tool, command, output))


def cpu_ir(
    context: BuildContext,
    source: Path,
    module: ModuleFile,
    lowered: Path,
    libraries: Sequence[Path] = (),
) -> Path:
    """Rewrite a lowered module for the CPU, by opt where the kernels have barriers.

    Without opt llvmlite does its part, if it is of the same release. Else each work-item runs on a
    stack of its own, which is slow.
    """
    executor = context.executor
    prepared, inlined = lowered.with_suffix(".host.ll"), lowered.with_suffix(".inlined.ll")
    known = (f"--device-lib={path}" for path in libraries)
    own = (*known, *rdc_option(context), *sanitize_option(context))
    options = (*kernel_options(module), *own, "--location", str(source))
    steps = ("--variables", module.path) if _is_for_debugger(context) else ()
    executor.step("cpu-ir", (lowered, *options, *steps, "-o", prepared), decides=True)
    if not unsplit(prepared).exists():
        return prepared
    if _inline(context, source, unsplit(prepared), inlined):
        executor.step("cpu-split", (inlined, "--from", lowered, *options, "-o", prepared))
    else:
        executor.step("cpu-ir", (lowered, *options, "--fibers", "-o", prepared))
    return prepared


def _is_for_debugger(context: BuildContext) -> bool:
    """Return whether each work-item is run alone, in the order of the source, with its variables."""
    options = context.options
    return options.debug and options.opt_level == 0 and options.sanitizer is None


def _inline(context: BuildContext, source: Path, text: Path, output: Path) -> bool:
    """Have a module inlined that is to be split at its barriers; say whether there is what does it."""
    executor, llvm = context.executor, context.llvm
    major = llvm.version.major
    if llvm.has("opt"):
        from mlir_offload.translate.cpu.module import cpu_prepare_command

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
