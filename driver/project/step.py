"""The steps of a project: each is one process that reads files and writes its outputs atomically.

`--split-step` splits a program, `--device-step` makes the images for one architecture, `--join-step`
makes the object from the host module and the images, `--module-step` does all of these.
`--source-step` compiles a file of another language, `--archive-step` makes a static library from objects.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.build.source import (
    compile_split,
    finish_object,
    make_host_ir,
    make_images,
    split_source,
)
from mlir_offload.driver.build.subcommand import build
from mlir_offload.driver.compile.clang_error import clang_error
from mlir_offload.driver.compile.context import Build, BuildContext, host_command, open_build
from mlir_offload.driver.compile.device import ordered_targets
from mlir_offload.driver.compile.gpu_cpp import compile_gpu_cpp
from mlir_offload.driver.compile.kind_build import (
    DeviceModule,
    ImageFile,
    as_made,
    build_of,
    select_modules,
    targets_for,
)
from mlir_offload.driver.compile.normalize import normalize
from mlir_offload.driver.compile.outputs import dump_arguments
from mlir_offload.driver.option.command_line import GPU_CPP, CompileOptions, parse_arguments
from mlir_offload.driver.project.parts import pack_device, pack_host, unpack_parts
from mlir_offload.driver.step.compiler_step import (
    ArchiveStep,
    BuildStep,
    DeviceStep,
    JoinStep,
    ModuleStep,
    SourceStep,
    SplitStep,
)
from mlir_offload.driver.step.image_container import (
    StepImage,
    read_images,
    write_image,
)
from mlir_offload.driver.step.launcher import choose_launcher
from mlir_offload.driver.step.object_file import archive_command, write_member_list
from mlir_offload.driver.step.split_file import SplitFiles, load_split_files, refuse_objects
from mlir_offload.driver.system.depfile import quote_for_make, render_rule
from mlir_offload.driver.system.parallel import JobSlots
from mlir_offload.driver.system.tool_watch import ToolWatch
from mlir_offload.driver.system.workspace import (
    make_directory,
    open_output,
    publish,
)
from mlir_offload.driver.tools.choose import find_step_tools
from mlir_offload.driver.tools.toolchain_id import (
    RememberingRunner,
    check_step_tools,
    identify_kinds,
)
from mlir_offload.offload.host.source_line import render_line_nodes
from mlir_offload.offload.ir_syntax import kernel_signatures, render_kernel_heads
from mlir_offload.toolchain.byte_view import copy_view, open_view, write_all
from mlir_offload.toolchain.errors import (
    SourceError,
    ToolFailedError,
    UsageError,
    VerificationError,
)
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.target import Kind, Target

HOST_PART, DEVICE_PART = ".host", ".device"


class _Work(Struct, frozen=True):
    """A step, its build context and its tools."""

    step: BuildStep
    context: BuildContext
    tools: ToolWatch

    @property
    def source(self) -> Path:
        """Return the path of the input."""
        return Path(self.step.source)

    @property
    def output(self) -> Path:
        """Return the path of the output."""
        return Path(self.step.output)

    @property
    def program(self) -> Path:
        """Return the user's source, which errors name."""
        return Path(self.step.program or self.source)

    def publish(self, made: Path) -> None:
        """Move a file to the output, unless the tools have changed."""
        self.tools.check()
        publish(made, self.output)

    def note_libraries(self, depfile: Path, targets: Iterable[Target]) -> None:
        """Write a dependency file, if requested, with the user's libraries in images for the targets."""
        if depfile not in map(Path, self.step.depfiles):
            return
        names = set(map(str, targets))
        noted = self.context.dependencies.of(self.program)
        files = [str(read.path) for read in noted if read.target in names]
        target = quote_for_make(str(depfile.with_suffix("")))
        text = render_rule((target,), (str(self.source),), files, phony=True)
        with open_output(depfile) as descriptor:
            write_all(text.encode("utf-8", "surrogateescape"), descriptor)


def run_project_step(step: BuildStep, runner: Runner) -> None:
    """Run the step. Raises MlirOffloadError; then no output is written."""
    options = replace(parse_arguments(step.compiler_words), save_temps=None)
    make_directory(Path(step.output).parent)
    with open_build(options, runner, slots=_slots(options)) as opened:
        tools = ToolWatch()
        work = _Work(step, _context(step, opened, tools), tools)
        try:
            _do(work)
        except (SourceError, ToolFailedError, VerificationError):
            _retell(work, runner)
            raise


def _do(work: _Work) -> None:
    match work.step:
        case ModuleStep():
            _module(work, work.step)
        case SplitStep():
            _split(work, work.step)
        case DeviceStep():
            _device(work)
        case JoinStep():
            _join(work, work.step)
        case SourceStep():
            _source(work)
        case ArchiveStep():
            _archive(work, work.step)
        case _:
            raise AssertionError(work.step.name)


def _retell(work: _Work, runner: Runner) -> None:
    """Compile the user's program to raise an error with source locations, which a step's inputs lack."""
    if work.step.program is None or not work.program.is_file():
        return
    again = work.context.workspace / "again.o"
    alone = replace(work.step, source=work.program, output=again)
    build(alone.compiler_words, runner)


def _context(step: BuildStep, opened: Build, tools: ToolWatch) -> BuildContext:
    """Find the tools. Raises CompatibilityError if their identity differs from the step's."""
    options = opened.options
    found = find_step_tools(options, RememberingRunner(opened.runner))
    made = _kinds_made(step, options, {target.kind for target in found.targets})
    identity = identify_kinds(made, found.releases, found.cuda, found.rocm, options.march)
    check_step_tools(identity, step.toolchain_id, tools)
    return opened.context(found, launcher=choose_launcher(options, os.environ))


def _kinds_made(step: BuildStep, options: CompileOptions, kinds: set[Kind]) -> set[Kind]:
    """Return the device kinds that the step compiles for, whose tools are part of its identity."""
    if isinstance(step, JoinStep):
        return kinds if options.makes_non_rdc_objects else set()
    if isinstance(step, SourceStep):
        kind = GPU_CPP.get(options.inputs[0].suffix)
        return {kind} if kind else set()
    return kinds


def _slots(options: CompileOptions) -> JobSlots:
    """Return the job slots of a step: those of -j, by default one."""
    return JobSlots(options.jobs if any(name == "-j" for name, _ in options.spelled) else 1)


def _module(work: _Work, step: ModuleStep) -> None:
    """Do all steps of a module, and write their intermediate files for later builds."""
    context, directory = work.context, work.context.workspace / "program"
    normalize(context, work.source, directory)
    split = split_source(context, work.source, directory)
    refuse_objects(split, work.source, "a step of a project")
    made = context.workspace / "host.o"
    device = compile_split(context, work.source, split, directory, made)
    work.tools.check()
    _publish_parts(work, directory / "split")
    for target, output in zip(context.targets, map(Path, step.image_files), strict=False):
        _publish_images(work, device, target, output)
    work.note_libraries(_depfile_of(work.output), context.targets)
    work.publish(made)


def _publish_parts(work: _Work, split: Path) -> None:
    debug, output = work.context.options.debug, work.output
    pack_device(split, output.with_suffix(DEVICE_PART), keeps_locations=debug)
    pack_host(split, output.with_suffix(HOST_PART), keeps_locations=debug)


def _publish_images(
    work: _Work, device: Sequence[DeviceModule], target: Target, output: Path
) -> None:
    """Write the images of all modules for a target as concatenated containers."""
    made = work.context.workspace / f"{target.kind}.{target.arch}.images"
    made.touch()
    for module in device:
        for image in module.images:
            if image.target == target:
                container = work.context.workspace / "container"
                _write_container(work, module, image, container)
                with made.open("ab") as stream:
                    stream.write(container.read_bytes())
    work.note_libraries(_depfile_of(output), (target,))
    publish(made, output)


def _depfile_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.d")


def _split(work: _Work, step: SplitStep) -> None:
    context, directory = work.context, work.context.workspace / "program"
    normalize(context, work.source, directory)
    split = split_source(context, work.source, directory, step.forms)
    refuse_objects(split, work.source, "a step of a project")
    work.tools.check()
    _publish_parts(work, directory / "split")


def _device(work: _Work) -> None:
    """Make the images of all modules for one architecture."""
    context = work.context
    if len(context.targets) != 1:
        msg = "--device-step makes images for one --offload-arch="
        raise UsageError(msg)
    split = _unpack(context, (work.source,))
    device = make_images(context, work.program, split.modules)
    work.tools.check()
    _publish_images(work, device, context.targets[0], work.output)


def _write_container(work: _Work, module: DeviceModule, image: ImageFile, output: Path) -> None:
    text = module.ir.read_text(encoding="utf-8")
    signatures = kernel_signatures(text)
    symbols = (kernel.symbol for kernel in module.module.module.kernels)
    heads = render_kernel_heads({symbol: signatures[symbol] for symbol in symbols})
    with open_view(image.path) as view:
        contained = StepImage(view, heads + render_line_nodes(text), ())
        write_image(contained, image.target, work.context.consumer, output)


def _join(work: _Work, step: JoinStep) -> None:
    context = work.context
    is_final = context.options.makes_non_rdc_objects
    if len(step.image_files) != (0 if is_final else len(context.targets)):
        msg = "--join-step takes --device=FILE and an --images=FILE for each architecture"
        raise UsageError(msg)
    split = _unpack(context, (Path(step.device), work.source))
    if is_final:
        device = make_images(context, work.program, split.modules)
    else:
        device = _read_device(context, work.program, split, list(map(Path, step.image_files)))
    host = make_host_ir(context, work.program, split, context.workspace)
    made = context.workspace / "host.o"
    finish_object(context, work.program, split, device, host, made)
    work.note_libraries(_depfile_of(work.output), context.targets)
    work.publish(made)


def _unpack(context: BuildContext, files: Sequence[Path]) -> SplitFiles:
    directory = context.workspace / "split"
    unpack_parts(files, directory)
    return load_split_files(directory)


def _read_device(
    context: BuildContext, program: Path, split: SplitFiles, files: Sequence[Path]
) -> tuple[DeviceModule, ...]:
    """Write each image to a separate file, in the compiler's order; return the device modules."""
    modules = []
    for module in select_modules(context, program, split.modules):
        heads = module.path.with_suffix(".kernels.ll")
        images: list[ImageFile] = []
        for target in ordered_targets(context, module):
            file = files[context.targets.index(target)]
            image = build_of(target.kind).image_file(context, module.path, target)
            selected = [item for item in split.modules if target in targets_for(context, item)]
            kernels = _take_image(file, selected.index(module), len(selected), image.path)
            if not images:
                heads.write_text(kernels, encoding="utf-8")
            images.append(as_made(image))
        modules.append(DeviceModule(module, heads, tuple(images)))
    return tuple(modules)


def _take_image(file: Path, number: int, count: int, output: Path) -> str:
    """Write one image of a step's output; return the heads of its kernels."""
    with open_view(file) as view:
        images = read_images(view)
        if len(images) != count:
            reason = f"{len(images)} images for {count} device modules"
            raise view.malformed(0, "images", reason)
        with open_output(output) as descriptor:
            copy_view(images[number].content, descriptor)
        return images[number].kernels


def _source(work: _Work) -> None:
    context, made = work.context, work.context.workspace / "source.o"
    noted = (("-MD", "-MF", str(file), "-MT", str(work.output)) for file in work.step.depfiles)
    notes = tuple(word for words in noted for word in words)
    options = context.options
    noting = replace(
        context,
        options=replace(options, compiler_arguments=(*options.compiler_arguments, *notes)),
    )
    if work.source.suffix in GPU_CPP:
        compile_gpu_cpp(noting, work.source, made, next(map(Path, work.step.depfiles), None))
    else:
        command = host_command(noting, work.source, made, *dump_arguments(context, work.source))
        context.executor.tool(command, made, diagnose=clang_error)
    work.publish(made)


def _archive(work: _Work, step: ArchiveStep) -> None:
    context, made = work.context, work.context.workspace / "library.a"
    write_member_list((work.source, *map(Path, step.members)), context.workspace)
    context.executor.tool(
        archive_command(context.llvm.tool("llvm-ar"), context.workspace, made), made
    )
    work.publish(made)
