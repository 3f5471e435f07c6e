"""The hermetic steps: one input, one output, a process of its own, so that ccache can keep them.

Each is a command of a compiler's form, `mlir-offload --image-step -x cpp-output -c IN -o OUT ...`.
Where the tools are is found as for any other call; `--toolchain-id` says which they must be.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.build.open import Build, open_build
from mlir_offload.driver.compile.byproduct import check_outputs, withdrawn_on_failure
from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.option.command_line import parse_arguments
from mlir_offload.driver.step.library_identity import LIBRARY_ID, check_libraries
from mlir_offload.driver.system.depfile import quote_for_make, render_rule
from mlir_offload.driver.system.jobserver import JobSlots
from mlir_offload.driver.system.tool_watch import ToolWatch
from mlir_offload.driver.system.workspace import publish
from mlir_offload.driver.tools.found import check_step_tools, find_step_tools
from mlir_offload.driver.tools.toolchain_id import RememberingRunner, identify_for
from mlir_offload.toolchain.errors import InputOutputError, UsageError
from mlir_offload.toolchain.process import Runner

_KERNEL, _NEEDS, _IDENTITY, _TIME = "--kernel=", "--needs=", "--toolchain-id=", "--time="
_JOINED = (_KERNEL, _NEEDS, _IDENTITY, _TIME, LIBRARY_ID)
_ASYNC = "--async"


class _StepOptions(Struct, frozen=True):
    """What the steps take beside the options of the compiler."""

    compiler: tuple[str, ...]
    kernels: tuple[str, ...]
    needs: tuple[str, ...]
    toolchain_id: str
    library_id: str
    source_time: int
    uses_async: bool


class _Step(Struct, frozen=True):
    """One call of a step, read and ready."""

    context: BuildContext
    source: Path
    given: _StepOptions


def run_image_step(arguments: Sequence[str], runner: Runner) -> int:
    """Compile one device module for one architecture."""
    return _run(arguments, runner, _image)


def run_host_step(arguments: Sequence[str], runner: Runner) -> int:
    """Lower one host module to LLVM IR."""
    return _run(arguments, runner, _host)


def run_object_step(arguments: Sequence[str], runner: Runner) -> int:
    """Compile one annotated host module to an object."""
    return _run(arguments, runner, _object)


def _run(arguments: Sequence[str], runner: Runner, work: Callable[[_Step, Path], None]) -> int:
    """Do the work in a directory of its own, then bring the output to its place.

    Raises MlirOffloadError; no output is left then.
    """
    given = _read_options(arguments)
    options = parse_arguments(given.compiler)
    if len(options.inputs) != 1 or options.output is None or not options.stop_after_compile:
        msg = "a step has one input and one output: -x cpp-output -c IN -o OUT"
        raise UsageError(msg)
    check_outputs(options)
    with withdrawn_on_failure(options), open_build(options, runner, slots=JobSlots(1)) as opened:
        source = _copy(options.inputs[0], opened.workspace)
        tools = ToolWatch()
        step = _Step(_context(opened, given, tools), source, given)
        made = opened.workspace / "output"
        with tools.unchanged():
            work(step, made)
        _write_depfile(step)
        publish(made, options.output)
    return 0


def _write_depfile(step: _Step) -> None:
    request, (source,) = step.context.options.depfile, step.context.options.inputs
    output = step.context.options.output
    if not request.is_wanted or output is None:
        return
    targets = request.targets or (quote_for_make(str(output)),)
    others = [str(read.path) for read in step.context.dependencies.of(step.source)]
    rule = render_rule(targets, [str(source)], others, phony=request.has_phony_targets)
    Path(request.file or output.with_suffix(".d")).write_text(rule, encoding="utf-8")


def _read_options(arguments: Sequence[str]) -> _StepOptions:
    compiler: list[str] = []
    own: dict[str, list[str]] = {name: [] for name in (*_JOINED, _ASYNC)}
    for word in arguments:
        name = next((name for name in _JOINED if word.startswith(name)), word)
        if name in own:
            own[name].append(word.removeprefix(name))
        else:
            compiler.append(word)
    time = "".join(own[_TIME][-1:]) or "1"
    if not (time.isascii() and time.isdecimal()):
        msg = f"--time={time}: not a number of seconds since 1970"
        raise UsageError(msg)
    return _StepOptions(
        tuple(compiler),
        tuple(own[_KERNEL]),
        tuple(own[_NEEDS]),
        "".join(own[_IDENTITY][-1:]),
        "".join(own[LIBRARY_ID][-1:]),
        int(time),
        uses_async=bool(own[_ASYNC]),
    )


def _copy(source: Path, workspace: Path) -> Path:
    """Bring the input under a name that says nothing, so that no output can hold its name."""
    try:
        return Path(shutil.copyfile(source, workspace / "input.mlir"))
    except OSError as error:
        msg = f"cannot read {source}: {error.strerror}"
        raise InputOutputError(msg, hint="check the name and the permissions") from error


def _context(opened: Build, given: _StepOptions, tools: ToolWatch) -> BuildContext:
    """Find the tools. Raises CompatibilityError where they are not those that were asked for."""
    found = find_step_tools(opened.options, RememberingRunner(opened.runner))
    kind = found.targets[0].kind if found.targets else None
    identity = identify_for(kind, found.releases, found.cuda, found.rocm)
    check_step_tools(identity, given.toolchain_id, tools)
    return replace(opened.context(found), source_time=given.source_time)


# Each step loads what it needs only: a miss pays for it.
def _image(step: _Step, output: Path) -> None:
    from mlir_offload.driver.compile.device import compile_device
    from mlir_offload.driver.step.image_container import StepImage, write_image
    from mlir_offload.driver.step.split_file import ModuleFile
    from mlir_offload.offload.host.module import kernel_signatures, render_kernel_heads
    from mlir_offload.toolchain.byte_view import open_view
    from mlir_offload.translate.gpu_module import GpuModule, Kernel

    context = step.context
    if len(context.targets) != 1:
        msg = "--image-step makes an image for one --offload-arch="
        raise UsageError(msg)
    libraries = context.options.device_flags.libraries
    check_libraries(step.given.library_id, libraries, context.targets[0])
    text = step.source.read_text(encoding="utf-8", errors="surrogateescape")
    kernels = tuple(Kernel(name, name) for name in step.given.kernels)
    module = ModuleFile(step.source, GpuModule("", kernels, text, frozenset(step.given.needs)))
    made = compile_device(context, step.source, [module])[0]
    signatures = kernel_signatures(made.ir.read_text(encoding="utf-8"))
    missing = sorted(set(step.given.kernels) - signatures.keys())
    if missing:
        msg = f"the input defines no kernel {missing[0]}"
        raise UsageError(msg, hint="--kernel= names the kernels of the module")
    heads = render_kernel_heads({name: signatures[name] for name in step.given.kernels})
    image = made.images[0]
    with open_view(image.path) as view:
        names = tuple(read.path.name for read in context.dependencies.of(step.source))
        contained = StepImage(view, heads, names)
        write_image(contained, context.targets[0], context.consumer, output)


def _host(step: _Step, output: Path) -> None:
    from mlir_offload.driver.build.source import lower_host
    from mlir_offload.driver.step.split_file import SplitFiles

    split = SplitFiles(step.source, step.given.uses_async, ())
    lower_host(step.context, step.source, split, step.context.workspace).replace(output)


def _object(step: _Step, output: Path) -> None:
    from mlir_offload.driver.compile.host_code import host_command

    annotated = step.source.rename(step.source.with_suffix(".ll"))
    made = step.context.workspace / "host.o"
    step.context.executor.tool(host_command(step.context, annotated, made), made)
    made.replace(output)


STEPS: Mapping[str, Callable[[Sequence[str], Runner], int]] = {
    "--image-step": run_image_step,
    "--host-step": run_host_step,
    "--object-step": run_object_step,
}
