"""From one `.mlir` file to one object: the steps and their order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.build import linked
from mlir_offload.driver.compile import (
    clang_error,
    downgrade,
    embed,
    gpu_cpp,
    launched,
    linked_image,
)
from mlir_offload.driver.compile.context import BuildContext, clang_depfile_arguments, host_command
from mlir_offload.driver.compile.device import (
    compile_device,
    lower_device,
    lower_jointly,
    lowered_text,
    ordered_targets,
)
from mlir_offload.driver.compile.kind_build import (
    DeviceModule,
    build_of,
    kernels_of,
    select_modules,
)
from mlir_offload.driver.compile.normalize import (
    normalized,
    runs_transform_scripts,
    works_on_host_memory,
)
from mlir_offload.driver.compile.outputs import dump_arguments
from mlir_offload.driver.option.command_line import GPU_CPP, MLIR_SUFFIXES, Mode
from mlir_offload.driver.step import image_file
from mlir_offload.driver.step.split_file import ModuleFile, Split, SplitFiles, load_split_files
from mlir_offload.driver.system.parallel import parallel_map, pool, run_concurrently
from mlir_offload.offload import llvm_ir
from mlir_offload.toolchain.errors import MlirOffloadError, SourceError
from mlir_offload.toolchain.process import Completed
from mlir_offload.toolchain.target import Target, host_triple
from mlir_offload.translate import diagnostics
from mlir_offload.translate.host.module import check_host
from mlir_offload.translate.kernel import WIDE, ParameterForm
from mlir_offload.translate.kind_lowering import NVVM_FORM, DeviceForm, forms_of, lowering_for
from mlir_offload.translate.lower import (
    host_pipeline_command,
    translate_command,
)


def compile_inputs(context: BuildContext) -> tuple[DeviceModule, ...]:
    """Compile all sources concurrently, each to its object. Return the device modules with their images."""
    work = [partial(_compile, context, *pair) for pair in context.compiled.items()]
    return tuple(module for modules in parallel_map(work) for module in modules)


def _compile(context: BuildContext, source: Path, output: Path) -> tuple[DeviceModule, ...]:
    if source.suffix in MLIR_SUFFIXES:
        return compile_mlir(context, source, output.parent, output)
    context.executor.make_directory(output.parent)
    if source.suffix in GPU_CPP:
        gpu_cpp.compile_gpu_cpp(context, source, output)
        return ()
    noted = clang_depfile_arguments(context.options, source, output)
    dumped = dump_arguments(context, source)
    command = host_command(context, source, output, *noted, *dumped)
    context.executor.tool(command, output, diagnose=_clang_error)
    return ()


def compile_mlir(
    context: BuildContext, source: Path, directory: Path, output: Path
) -> tuple[DeviceModule, ...]:
    """Compile one `.mlir` file to `output`, with all intermediate files in `directory`.

    Waits until the file is normalised there. Raises SourceError, with its location in `source`, for an
    invalid program.
    """
    context.wait_for(normalized(directory))
    split = split_source(context, source, directory)
    return compile_split(context, source, split, directory, output)


def compile_split(
    context: BuildContext, source: Path, split: SplitFiles, directory: Path, output: Path
) -> tuple[DeviceModule, ...]:
    """Compile a split program to `output`; host and devices are lowered together or concurrently.

    Return the device modules with their images.
    """
    with _joint(context, source, split, directory) as joint:
        device, (host, is_device_linked) = run_concurrently(
            partial(make_images, joint, source, split.modules),
            partial(_make_host, joint, source, split, directory, output),
        )
    if not is_device_linked or not all(image.is_linked for one in device for image in one.images):
        finish_object(context, source, split, device, host, output)
    return device


def _make_host(
    context: BuildContext, source: Path, split: SplitFiles, directory: Path, output: Path
) -> tuple[Path, bool]:
    """Lower the host module, and emit its object if it will contain no image; return whether it was emitted."""
    host = make_host_ir(context, source, split, directory)
    device = _modules_to_be_linked(context, split)
    if device:
        finish_object(context, source, split, device, host, output)
    return host, bool(device)


def _modules_to_be_linked(context: BuildContext, split: SplitFiles) -> tuple[DeviceModule, ...]:
    """Return the device modules, without their images, if each image will be a linked one.

    That is known only if host and devices are lowered together. With -### it is not used, so that the
    commands are printed in one order.
    """
    if context.joint is None or context.options.dry_run:
        return ()
    found = []
    for module in split.modules:
        if module.objects:
            return ()
        texts = [
            (target, lowered_text(module, lowering_for(module.module.needs, target)))
            for target in ordered_targets(context, module)
        ]
        if not texts or not all(_will_be_linked(context, module, *pair) for pair in texts):
            return ()
        found.append(DeviceModule(module, texts[0][1], ()))
    return tuple(found)


def _will_be_linked(
    context: BuildContext, module: ModuleFile, target: Target, lowered: Path
) -> bool:
    image = build_of(target.kind).image_file(context, lowered, target)
    return (
        image.path.suffix != ".bc"
        and context.is_lowered(lowered)
        and linked_image.needs_no_link(context, module, lowered)
    )


@contextlib.contextmanager
def _joint(
    context: BuildContext, source: Path, split: SplitFiles, directory: Path
) -> Iterator[BuildContext]:
    """Start lowering host and device code together, unless a launcher caches the parts."""
    if context.launched is not None or not split.modules:
        yield context
        return
    modules = select_modules(context, source, split.modules)
    work = partial(lower_jointly, context, split, modules, host_text(directory))
    with pool() as threads:
        yield replace(context, joint=threads.submit(work))


def host_text(directory: Path) -> Path:
    """Return the path of the LLVM IR of the host module."""
    return directory / "host.ll"


def finish_object(
    context: BuildContext,
    source: Path,
    split: SplitFiles,
    device: tuple[DeviceModule, ...],
    host: Path,
    output: Path,
) -> None:
    """Embed the images into the host module and emit the format that the options request.

    Bitcode is written in process if llvmlite contains the linking LLVM, otherwise by its clang.
    """
    mode = context.options.mode
    has_two = context.host_reader < context.mlir.version.major
    embeds = context.options.embed_runtime and not context.options.makes_non_rdc_objects
    in_process = mode is Mode.LLVM_BITCODE and llvm_ir.is_written_in_process(context.consumer)
    if (mode is Mode.LLVM_TEXT or in_process) and not has_two and not embeds:
        _embed(context, source, split, device, host, output)
        return
    # clang reads text as fast as bitcode, and writing bitcode first would take longer.
    embedded = host.with_name("host.embedded.ll")
    _embed(context, source, split, device, host, embedded)
    embedded = context.text_for(context.host_reader, embedded, source)
    if embeds:
        whole = host.with_name("host.whole.ll")
        embed.embed_runtime(context, embedded, whole)
        embedded = whole
    if mode is Mode.LLVM_TEXT:
        context.executor.place(embedded, output)
    elif mode is Mode.LLVM_BITCODE:
        command = llvm_ir.assemble_command(context.llvm, embedded, output)
        context.executor.tool(
            command, output, diagnose=lambda done: downgrade.not_taken(context, done)
        )
    else:
        _make_linkable(context, source, embedded, device, output)


def _make_linkable(
    context: BuildContext,
    source: Path,
    embedded: Path,
    device: tuple[DeviceModule, ...],
    output: Path,
) -> None:
    if not context.options.makes_non_rdc_objects or context.options.mode is Mode.ASSEMBLY:
        _make_object(context, embedded, output)
        return

    made = embedded.with_name("host.o")
    _make_object(context, embedded, made)
    linked.finish_non_rdc(context, source, made, device, output)


def make_images(
    context: BuildContext, source: Path, modules: Sequence[ModuleFile]
) -> tuple[DeviceModule, ...]:
    """Compile every device module for every target, under the launcher if there is one."""
    selected = select_modules(context, source, modules)
    if context.options.is_host_only:
        return lower_device(context, source, selected)
    if context.launched is None:
        return compile_device(context, source, selected)

    return launched.launch_device(context, context.launched, source, selected)


def _make_object(context: BuildContext, embedded: Path, output: Path) -> None:
    command = host_command(context, embedded, output)

    def diagnose(failed: Completed) -> MlirOffloadError:
        return downgrade.not_taken(context, failed)

    compile_here = partial(context.executor.tool, command, output, diagnose=diagnose)
    if context.launched is None or context.options.mode is Mode.ASSEMBLY:
        compile_here()
        return

    launched.launch_object(context, context.launched, embedded, output, compile_here)


def split_source(
    context: BuildContext, source: Path, directory: Path, forms: Sequence[DeviceForm] = ()
) -> SplitFiles:
    """Split a normalised program into its host module and its device modules.

    The device modules have the given forms, by default those of the targets, or NVVM without targets.
    """
    options = context.options
    describes_memory = works_on_host_memory(context, source)
    step = Split(
        source=normalized(directory),
        made_from=source,
        unit_id=source.name,
        llvm=context.mlir.version.major,
        prefix_maps=options.prefix_maps,
        forms=tuple(forms or forms_of(context.targets)) or (NVVM_FORM,),
        targets=context.targets,
        fast_math=options.device_flags.fast_math,
        parameters=_parameter_form(context, describes_memory=describes_memory),
        index_bits=_narrow_bits(context),
        describe_memory=describes_memory,
        transformed=runs_transform_scripts(context),
        rdc=bool(options.gpu_rdc),
        is_program=options.makes_program,
        output=directory / "split",
    )
    context.executor.step(step, decides=True)
    return load_split_files(step.output)


def _parameter_form(context: BuildContext, *, describes_memory: bool) -> ParameterForm | None:
    """Return how kernels take memrefs; without optimisation None, as the program declares them.

    Kernels keep all parts of a memref with --offload-device-only, because other programs may launch them,
    and for targets on host memory, because the runtime reads the named fields of a memref.
    """
    if not context.options.opt_level:
        return None
    keeps_all = describes_memory or context.options.mode is Mode.DEVICE
    return ParameterForm.PARTS if keeps_all else ParameterForm.NEEDED


def _narrow_bits(context: BuildContext) -> int | None:
    bits = context.options.device_flags.index_bits
    return None if bits == WIDE else bits


def make_host_ir(context: BuildContext, source: Path, split: SplitFiles, directory: Path) -> Path:
    """Lower the host module, under the launcher if there is one."""
    lower_here = partial(lower_host, context, source, split, directory)
    if context.launched is None:
        return lower_here()

    return launched.launch_host_lowering(
        context, context.launched, split, directory / "host.ll", lower_here
    )


def lower_host(context: BuildContext, source: Path, split: SplitFiles, directory: Path) -> Path:
    """Lower the host module to LLVM IR, in a file of the directory. Raises SourceError."""
    executor, llvm = context.executor, context.mlir
    low, text = directory / "host.low.mlir", host_text(directory)
    if context.is_lowered(text):
        return text
    command = host_pipeline_command(
        llvm, split.host, low, uses_async=split.uses_async, debug=context.options.debug
    )
    executor.tool(command, low, diagnose=lambda done: diagnostics.condense(done, source=source))
    executor.tool(
        translate_command(llvm, low, text), text, diagnose=partial(_not_lowered, low, source)
    )
    return text


def _clang_error(failed: Completed) -> MlirOffloadError:
    return clang_error.clang_error(failed)


def _not_lowered(low: Path, source: Path, completed: Completed) -> MlirOffloadError:
    """Return an error that names the operation, because mlir-translate names neither it nor its location."""
    try:
        check_host(low.read_text(encoding="utf-8", errors="surrogateescape"))
    except SourceError as error:
        return error
    return diagnostics.condense(completed, source=source)


def _embed(
    context: BuildContext,
    source: Path,
    split: SplitFiles,
    device: tuple[DeviceModule, ...],
    host: Path,
    output: Path,
) -> None:
    """Package the images and write the host module that contains them."""
    executor, release = context.executor, context.for_clang
    images = tuple(
        image.packaged for module in device for image in module.images if not image.is_linked
    )
    binary = host.with_name("images.offload") if images else None
    if binary is not None:
        executor.step(image_file.Package(images=images, for_clang=release, output=binary))
    kernels = {module: kernels_of(module.module) for module in device}
    step = image_file.Embed(
        source=host,
        binary=binary,
        kinds=tuple(dict.fromkeys(target.kind for target in context.targets)),
        devices=tuple(module.ir for module in device),
        linked_images=tuple(
            image_file.LinkedImageFile(image.target.kind, image.path, names)
            for module, names in kernels.items()
            for image in module.linked_images
        ),
        kernels=tuple(dict.fromkeys(name for names in kernels.values() for name in names)),
        declared=split.declared,
        interface=split.interface,
        sanitizer=context.options.sanitizer,
        triple=host_triple() if context.options.emit_llvm else "",
        location=str(source),
        for_clang=release,
        output=output,
    )
    executor.step(step)
