"""The hermetic steps: one input, one output, a separate process, so that ccache can cache them.

Each is a compiler command, `mlir-offload --image-step -x cpp-output -c IN -o OUT ...`. It searches for
the tools as any other invocation does; `--toolchain-id` is the identity that they must have.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.build import source as build_source
from mlir_offload.driver.compile import device
from mlir_offload.driver.compile.context import Build, BuildContext, host_command, open_build
from mlir_offload.driver.compile.outputs import check_outputs, remove_outputs_on_failure
from mlir_offload.driver.option.command_line import parse_arguments
from mlir_offload.driver.step import image_container, split_file
from mlir_offload.driver.step.compiler_step import HermeticStep, HostStep, ImageStep
from mlir_offload.driver.step.library_identity import check_libraries
from mlir_offload.driver.system.depfile import quote_for_make, render_rule
from mlir_offload.driver.system.parallel import JobSlots
from mlir_offload.driver.system.tool_watch import ToolWatch
from mlir_offload.driver.system.workspace import publish
from mlir_offload.driver.tools.choose import find_step_tools
from mlir_offload.driver.tools.toolchain_id import RememberingRunner, check_step_tools, identify_for
from mlir_offload.offload import ir_syntax
from mlir_offload.offload.host import source_line
from mlir_offload.toolchain import byte_view
from mlir_offload.toolchain.errors import InputOutputError, UsageError
from mlir_offload.toolchain.process import Runner
from mlir_offload.translate import gpu_module


class _Work(Struct, frozen=True):
    """A step, its build context, and a copy of its input."""

    step: HermeticStep
    context: BuildContext
    source: Path


def run_hermetic_step(step: HermeticStep, runner: Runner) -> None:
    """Run the step in its own temporary directory, then publish the output.

    Raises MlirOffloadError; then the output is removed.
    """
    options = parse_arguments(step.compiler_words)
    output = Path(step.output)
    check_outputs(options)
    with (
        remove_outputs_on_failure(options),
        open_build(options, runner, slots=JobSlots(1)) as opened,
    ):
        source = _copy(Path(step.source), opened.workspace)
        tools = ToolWatch()
        work = _Work(step, _context(opened, step, tools), source)
        made = opened.workspace / "output"
        with tools.unchanged():
            _do(work, made)
        _write_depfile(work)
        publish(made, output)


def _do(work: _Work, made: Path) -> None:
    match work.step:
        case ImageStep():
            _image(work, work.step, made)
        case HostStep():
            _host(work, work.step, made)
        case _:
            _object(work, made)


def _write_depfile(work: _Work) -> None:
    request, output = work.context.options.depfile, Path(work.step.output)
    if not request.is_wanted:
        return
    targets = request.targets or (quote_for_make(str(output)),)
    others = [str(read.path) for read in work.context.dependencies.of(work.source)]
    rule = render_rule(targets, [str(work.step.source)], others, phony=request.has_phony_targets)
    Path(request.file or output.with_suffix(".d")).write_text(rule, encoding="utf-8")


def _copy(source: Path, workspace: Path) -> Path:
    """Copy the input to a fixed name, so that no output can contain the original name."""
    try:
        return Path(shutil.copyfile(source, workspace / "input.mlir"))
    except OSError as error:
        msg = f"cannot read {source}: {error.strerror}"
        raise InputOutputError(msg, hint="check the name and the permissions") from error


def _context(opened: Build, step: HermeticStep, tools: ToolWatch) -> BuildContext:
    """Find the tools. Raises CompatibilityError if their identity differs from `--toolchain-id`."""
    found = find_step_tools(opened.options, RememberingRunner(opened.runner))
    kind = found.targets[0].kind if found.targets else None
    identity = identify_for(kind, found.releases, found.cuda, found.rocm)
    check_step_tools(identity, step.toolchain_id, tools)
    time = step.time if isinstance(step, ImageStep) else 1
    return replace(opened.context(found), source_time=time)


# Each step imports only the modules it uses, because every cache miss pays for the imports.
def _image(work: _Work, step: ImageStep, output: Path) -> None:

    context = work.context
    if len(context.targets) != 1:
        msg = "--image-step makes an image for one --offload-arch="
        raise UsageError(msg)
    libraries = context.options.device_flags.libraries
    check_libraries(step.library_id, libraries, context.targets[0])
    text = work.source.read_text(encoding="utf-8", errors="surrogateescape")
    kernels = tuple(gpu_module.Kernel(name, name) for name in step.kernels)
    module = split_file.ModuleFile(
        work.source, gpu_module.GpuModule("", kernels, text, frozenset(step.needs))
    )
    made = device.compile_device(context, work.source, [module])[0]
    lowered = made.ir.read_text(encoding="utf-8")
    signatures = ir_syntax.kernel_signatures(lowered)
    missing = sorted(set(step.kernels) - signatures.keys())
    if missing:
        msg = f"the input defines no kernel {missing[0]}"
        raise UsageError(msg, hint="--kernel= names the kernels of the module")
    heads = ir_syntax.render_kernel_heads({name: signatures[name] for name in step.kernels})
    heads += source_line.render_line_nodes(lowered)
    image = made.images[0]
    with byte_view.open_view(image.path) as view:
        names = tuple(read.path.name for read in context.dependencies.of(work.source))
        contained = image_container.StepImage(view, heads, names)
        image_container.write_image(contained, context.targets[0], context.consumer, output)


def _host(work: _Work, step: HostStep, output: Path) -> None:

    context, split = work.context, split_file.SplitFiles(work.source, step.uses_async, ())
    build_source.lower_host(context, work.source, split, context.workspace).replace(output)


def _object(work: _Work, output: Path) -> None:

    annotated = work.source.rename(work.source.with_suffix(".ll"))
    made = work.context.workspace / "host.o"
    work.context.executor.tool(host_command(work.context, annotated, made), made)
    made.replace(output)
