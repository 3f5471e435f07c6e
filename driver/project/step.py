"""The steps of a project: each one process, its inputs files, its outputs whole or not there.

`--split-step` takes a program apart, `--device-step` makes the images for one architecture,
`--join-step` makes the object of the host module and the images, `--module-step` does all of these.
`--source-step` compiles a file of another language, `--archive-step` makes a static library of objects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.driver.build.open import Build, open_build
from mlir_offload.driver.build.source import (
    finish_object,
    make_host_ir,
    make_images,
    split_source,
)
from mlir_offload.driver.build.verb import build
from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.device import ordered_targets
from mlir_offload.driver.compile.gpu_cpp import compile_gpu_cpp
from mlir_offload.driver.compile.host_code import host_command
from mlir_offload.driver.compile.image import DeviceModule, ImageFile, as_made
from mlir_offload.driver.compile.kind_build import build_of
from mlir_offload.driver.compile.normalize import normalize
from mlir_offload.driver.compile.served import served_modules, targets_for
from mlir_offload.driver.option.command_line import GPU_CPP, CompileOptions, parse_arguments
from mlir_offload.driver.project.parts import pack_device, pack_host, unpack_parts
from mlir_offload.driver.step.image_container import (
    StepImage,
    read_images,
    write_image,
)
from mlir_offload.driver.step.launcher import choose_launcher
from mlir_offload.driver.step.members import archive_command, write_member_list
from mlir_offload.driver.step.split_file import SplitFiles, load_split_files, refuse_objects
from mlir_offload.driver.system.depfile import quote_for_make, render_rule
from mlir_offload.driver.system.jobserver import JobSlots
from mlir_offload.driver.system.parallel import beside
from mlir_offload.driver.system.tool_watch import ToolWatch
from mlir_offload.driver.system.workspace import (
    make_directory,
    open_output,
    publish,
)
from mlir_offload.driver.tools.found import check_step_tools, find_step_tools
from mlir_offload.driver.tools.toolchain_id import RememberingRunner, identify_kinds
from mlir_offload.offload.host.module import kernel_signatures, render_kernel_heads
from mlir_offload.toolchain.byte_copy import copy_view, write_all
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.errors import (
    SourceError,
    ToolFailedError,
    UsageError,
    VerificationError,
)
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.target import Kind, Target
from mlir_offload.translate.device_form import parse_form

_IDENTITY, _DEVICE, _IMAGES, _PROGRAM = "--toolchain-id=", "--device=", "--images=", "--program="
_DEPFILE, _MEMBER, _FORM = "--depfile=", "--member=", "--form="
HOST_PART, DEVICE_PART = ".host", ".device"


class _Given(Struct):
    """What the steps take beside the options of the compiler."""

    compiler: list[str] = field(default_factory=list)
    images: list[Path] = field(default_factory=list)
    members: list[Path] = field(default_factory=list)
    device: Path | None = None
    depfiles: list[Path] = field(default_factory=list)
    program: str = ""
    toolchain_id: str = ""
    forms: list[str] = field(default_factory=list)


class _Step(Struct, frozen=True):
    """One call of a step, read and ready."""

    context: BuildContext
    source: Path
    output: Path
    given: _Given
    tools: ToolWatch

    @property
    def program(self) -> Path:
        """Return the file that the user wrote, which errors name."""
        return Path(self.given.program or self.source)

    def publish(self, made: Path) -> None:
        """Bring what was made to its place, unless the tools changed meanwhile."""
        self.tools.check()
        publish(made, self.output)

    def note_libraries(self, depfile: Path, targets: Iterable[Target]) -> None:
        """Write a dependency file, if it is asked for: the user's libraries in images for the targets."""
        if depfile not in self.given.depfiles:
            return
        names = set(map(str, targets))
        noted = self.context.dependencies.of(self.program)
        files = [str(read.path) for read in noted if read.target in names]
        target = quote_for_make(str(depfile.with_suffix("")))
        text = render_rule((target,), (str(self.source),), files, phony=True)
        with open_output(depfile) as descriptor:
            write_all(text.encode("utf-8", "surrogateescape"), descriptor)


def run_project_step(arguments: Sequence[str], runner: Runner) -> int:
    """Run the step that the first word names. Raises MlirOffloadError; no output is written then."""
    given = _read(arguments[1:])
    options = parse_arguments(given.compiler)
    in_order = given.compiler[:4:2] == ["-c", "-o"]
    if not in_order or len(options.inputs) != 1 or options.output is None:
        msg = f"{arguments[0]} has one input and one output: -c IN -o OUT"
        raise UsageError(msg)
    make_directory(options.output.parent)
    alone = replace(options, save_temps=None)
    with open_build(alone, runner, slots=_slots(options)) as opened:
        tools = ToolWatch()
        context = _context(arguments[0], opened, given, tools)
        step = _Step(context, options.inputs[0], options.output, given, tools)
        try:
            _WORK[arguments[0]](step)
        except (SourceError, ToolFailedError, VerificationError):
            _retell(step, runner)
            raise
    return 0


def _retell(step: _Step, runner: Runner) -> None:
    """Fail as the compiler does, which names places in the program: the inputs of a step name none."""
    if not step.given.program or not step.program.is_file():
        return
    again = step.context.workspace / "again.o"
    # The first four words are -c IN -o OUT.
    build(("-c", str(step.program), "-o", str(again), *step.given.compiler[4:]), runner)


def _read(arguments: Sequence[str]) -> _Given:
    given = _Given()
    for word in arguments:
        if word.startswith(_IDENTITY):
            given.toolchain_id = word.removeprefix(_IDENTITY)
        elif word.startswith(_DEVICE):
            given.device = Path(word.removeprefix(_DEVICE))
        elif word.startswith(_IMAGES):
            given.images.append(Path(word.removeprefix(_IMAGES)))
        elif word.startswith(_DEPFILE):
            given.depfiles.append(Path(word.removeprefix(_DEPFILE)))
        elif word.startswith(_MEMBER):
            given.members.append(Path(word.removeprefix(_MEMBER)))
        elif word.startswith(_FORM):
            given.forms.append(word.removeprefix(_FORM))
        elif word.startswith(_PROGRAM):
            given.program = word.removeprefix(_PROGRAM)
        else:
            given.compiler.append(word)
    return given


def _context(name: str, opened: Build, given: _Given, tools: ToolWatch) -> BuildContext:
    """Find the tools. Raises CompatibilityError where they are not those that were asked for."""
    options = opened.options
    found = find_step_tools(options, RememberingRunner(opened.runner))
    made = _kinds_made(name, options, {target.kind for target in found.targets})
    identity = identify_kinds(made, found.releases, found.cuda, found.rocm, options.march)
    check_step_tools(identity, given.toolchain_id, tools)
    return opened.context(found, launcher=choose_launcher(options, os.environ))


def _kinds_made(name: str, options: CompileOptions, kinds: set[Kind]) -> set[Kind]:
    """Return the kinds of images that a step makes, whose tools take part in it."""
    if name == "--join-step":
        return kinds if options.makes_final_objects else set()
    if name == "--source-step":
        kind = GPU_CPP.get(options.inputs[0].suffix)
        return {kind} if kind else set()
    return kinds


def _slots(options: CompileOptions) -> JobSlots:
    """Return how many programs a step may run at once: one, if it is not told another number."""
    return JobSlots(options.jobs if any(name == "-j" for name, _ in options.spelled) else 1)


def _module(step: _Step) -> None:
    """Do what the steps of a module do, and leave the files between them for later builds."""
    context, directory = step.context, step.context.workspace / "program"
    normalize(context, step.source, directory)
    split = split_source(context, step.source, directory)
    refuse_objects(split, step.source, "a step of a project")
    device, host = beside(
        partial(make_images, context, step.source, split.modules),
        partial(make_host_ir, context, step.source, split, context.workspace),
    )
    made = context.workspace / "host.o"
    finish_object(context, step.source, split, device, host, made)
    step.tools.check()
    _publish_parts(step, directory / "split")
    for target, output in zip(context.targets, step.given.images, strict=False):
        _publish_images(step, device, target, output)
    step.note_libraries(_depfile_of(step.output), context.targets)
    step.publish(made)


def _publish_parts(step: _Step, split: Path) -> None:
    debug, output = step.context.options.debug, step.output
    pack_device(split, output.with_suffix(DEVICE_PART), keeps_locations=debug)
    pack_host(split, output.with_suffix(HOST_PART), keeps_locations=debug)


def _publish_images(
    step: _Step, device: Sequence[DeviceModule], target: Target, output: Path
) -> None:
    """Write the images of all modules for a target, one container behind the other."""
    made = step.context.workspace / f"{target.kind}.{target.arch}.images"
    made.touch()
    for module in device:
        for image in module.images:
            if image.target == target:
                container = step.context.workspace / "container"
                _write_container(step, module, image, container)
                with made.open("ab") as stream:
                    stream.write(container.read_bytes())
    step.note_libraries(_depfile_of(output), (target,))
    publish(made, output)


def _depfile_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.d")


def _split(step: _Step) -> None:
    context, directory = step.context, step.context.workspace / "program"
    normalize(context, step.source, directory)
    split = split_source(context, step.source, directory, list(map(parse_form, step.given.forms)))
    refuse_objects(split, step.source, "a step of a project")
    step.tools.check()
    _publish_parts(step, directory / "split")


def _device(step: _Step) -> None:
    """Write the images of all modules, one container behind the other."""
    context = step.context
    if len(context.targets) != 1:
        msg = "--device-step makes images for one --offload-arch="
        raise UsageError(msg)
    split = _unpack(context, (step.source,))
    device = make_images(context, step.program, split.modules)
    step.tools.check()
    _publish_images(step, device, context.targets[0], step.output)


def _write_container(step: _Step, module: DeviceModule, image: ImageFile, output: Path) -> None:
    signatures = kernel_signatures(module.ir.read_text(encoding="utf-8"))
    symbols = (kernel.symbol for kernel in module.module.module.kernels)
    heads = render_kernel_heads({symbol: signatures[symbol] for symbol in symbols})
    with open_view(image.path) as view:
        contained = StepImage(view, heads, ())
        write_image(contained, image.target, step.context.consumer, output)


def _join(step: _Step) -> None:
    context, given = step.context, step.given
    is_final = context.options.makes_final_objects
    if given.device is None or len(given.images) != (0 if is_final else len(context.targets)):
        msg = "--join-step takes --device=FILE and an --images=FILE for each architecture"
        raise UsageError(msg)
    split = _unpack(context, (given.device, step.source))
    if is_final:
        device = make_images(context, step.program, split.modules)
    else:
        device = _read_device(context, step.program, split, given.images)
    host = make_host_ir(context, step.program, split, context.workspace)
    made = context.workspace / "host.o"
    finish_object(context, step.program, split, device, host, made)
    step.note_libraries(_depfile_of(step.output), context.targets)
    step.publish(made)


def _unpack(context: BuildContext, files: Sequence[Path]) -> SplitFiles:
    directory = context.workspace / "split"
    unpack_parts(files, directory)
    return load_split_files(directory)


def _read_device(
    context: BuildContext, program: Path, split: SplitFiles, files: Sequence[Path]
) -> tuple[DeviceModule, ...]:
    """Bring every image to a file of its own, in the order in which the compiler makes them."""
    modules = []
    for module in served_modules(context, program, split.modules):
        heads = module.path.with_suffix(".kernels.ll")
        images = []
        for target in ordered_targets(context, module):
            file = files[context.targets.index(target)]
            image = build_of(target.kind).image_file(context, module.path, target)
            served = [item for item in split.modules if target in targets_for(context, item)]
            _take_image(file, served.index(module), len(served), image.path, heads)
            images.append(as_made(image))
        modules.append(DeviceModule(module, heads, tuple(images)))
    return tuple(modules)


def _take_image(file: Path, number: int, count: int, output: Path, heads: Path) -> None:
    with open_view(file) as view:
        images = read_images(view)
        if len(images) != count:
            reason = f"{len(images)} images for {count} device modules"
            raise view.malformed(0, "images", reason)
        with open_output(output) as descriptor:
            copy_view(images[number].content, descriptor)
        heads.write_text(images[number].kernels, encoding="utf-8")


def _source(step: _Step) -> None:
    context, made = step.context, step.context.workspace / "source.o"
    noted = (("-MD", "-MF", str(file), "-MT", str(step.output)) for file in step.given.depfiles)
    notes = tuple(word for words in noted for word in words)
    options = context.options
    noting = replace(
        context,
        options=replace(options, compiler_arguments=(*options.compiler_arguments, *notes)),
    )
    if step.source.suffix in GPU_CPP:
        compile_gpu_cpp(noting, step.source, made)
    else:
        context.executor.tool(host_command(noting, step.source, made), made)
    step.publish(made)


def _archive(step: _Step) -> None:
    context, made = step.context, step.context.workspace / "library.a"
    write_member_list((step.source, *step.given.members), context.workspace)
    context.executor.tool(
        archive_command(context.llvm.tool("llvm-ar"), context.workspace, made), made
    )
    step.publish(made)


_WORK: Mapping[str, Callable[[_Step], None]] = {
    "--module-step": _module,
    "--split-step": _split,
    "--device-step": _device,
    "--join-step": _join,
    "--source-step": _source,
    "--archive-step": _archive,
}
