"""Compile device modules: lower each to LLVM IR once per lowering, then make an image for each target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.compile import precompiled_image
from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.kind_build import (
    DeviceModule,
    ImageFile,
    build_of,
    builds_of,
    targets_for,
)
from mlir_offload.driver.step import device
from mlir_offload.driver.step.split_file import (
    Join,
    ModuleFile,
    Part,
    Separate,
    SplitFiles,
    Unwrapping,
)
from mlir_offload.driver.step.step import TextStep
from mlir_offload.driver.system.parallel import parallel_map, run_concurrently
from mlir_offload.toolchain.errors import MlirOffloadError, SourceError
from mlir_offload.toolchain.process import Command, Completed
from mlir_offload.toolchain.target import Target
from mlir_offload.translate import diagnostics
from mlir_offload.translate.kind_lowering import DeviceLowering, form_of, lowering_for
from mlir_offload.translate.lower import (
    device_pipeline_command,
    host_pipeline_command,
    joint_pipeline_command,
    pipeline_of,
    translate_command,
)

# Lowering together saves the start of a tool; larger programs are faster with concurrent runs.
_MOST_BYTES = 1 << 18


def compile_device(
    context: BuildContext, source: Path, modules: Sequence[ModuleFile]
) -> tuple[DeviceModule, ...]:
    """Compile every device module for every target, concurrently."""
    tasks = [partial(_compile_module, context, source, module) for module in modules]
    return tuple(parallel_map(tasks))


def lower_device(
    context: BuildContext, source: Path, modules: Sequence[ModuleFile]
) -> tuple[DeviceModule, ...]:
    """Lower every device module for its first target only: host code needs the kernel signatures."""
    return tuple(parallel_map([partial(_lower_only, context, source, one) for one in modules]))


def _lower_only(context: BuildContext, source: Path, module: ModuleFile) -> DeviceModule:
    if module.objects:
        return DeviceModule(module, module.path, ())
    target = ordered_targets(context, module)[0]
    lowering = lowering_for(module.module.needs, target)
    return DeviceModule(module, lower_module(context, source, module, lowering, target), ())


def _compile_module(context: BuildContext, source: Path, module: ModuleFile) -> DeviceModule:
    """Lower the module once for all targets with the same lowering, then make the images."""
    if module.objects:
        return DeviceModule(
            module, module.path, *precompiled_image.make_precompiled_images(context, source, module)
        )
    groups = groupby(
        ordered_targets(context, module), key=partial(lowering_for, module.module.needs)
    )
    results = parallel_map(
        [
            partial(_compile_group, context, source, module, lowering, tuple(targets))
            for lowering, targets in groups
        ]
    )
    images = tuple(image for _, made in results for image in made)
    return DeviceModule(module, results[0][0], images)


def ordered_targets(context: BuildContext, module: ModuleFile) -> list[Target]:
    """Return the targets of a module, those with the same lowering next to each other."""
    return sorted(targets_for(context, module), key=partial(lowering_for, module.module.needs))


def _compile_group(
    context: BuildContext,
    source: Path,
    module: ModuleFile,
    lowering: DeviceLowering,
    targets: tuple[Target, ...],
) -> tuple[Path, list[ImageFile]]:
    lowered, _ = run_concurrently(
        partial(lower_module, context, source, module, lowering, targets[0]),
        partial(_prepare, context, targets),
    )
    images = parallel_map(
        [
            partial(build_of(target.kind).make_image, context, source, module, lowered, target)
            for target in targets
        ]
    )
    return lowered, images


def lowered_text(module: ModuleFile, lowering: DeviceLowering) -> Path:
    """Return the path of the LLVM IR of a module."""
    return module.path.with_name(f"{module.path.stem}{lowering.suffix}.ll")


def device_command(
    context: BuildContext,
    module: ModuleFile,
    lowering: DeviceLowering,
    target: Target,
    output: Path,
    *,
    has_lines: bool = False,
) -> Command:
    """Return the mlir-opt command that lowers a module, with source locations if requested."""
    return device_pipeline_command(
        context.mlir,
        module.text_for(form_of(target)),
        output,
        module=module.module,
        lowering=lowering,
        debug=context.options.debug or has_lines,
        index_bits=context.options.device_flags.index_bits,
    )


def lower_module(
    context: BuildContext,
    source: Path,
    module: ModuleFile,
    lowering: DeviceLowering,
    target: Target,
) -> Path:
    """Lower a module to LLVM IR with the intrinsics of the target's device kind."""
    text = lowered_text(module, lowering)
    if not context.is_lowered(text):
        low = text.with_suffix(".low.mlir")
        command = device_command(context, module, lowering, target, low)
        _run_lowering(context, source, command, low, lowering, text)
    return text


def lower_with_lines(
    context: BuildContext, source: Path, module: ModuleFile, target: Target
) -> Path:
    """Lower a module again with source locations, to locate an error that has none."""
    lowering = lowering_for(module.module.needs, target)
    text = lowered_text(module, lowering).with_suffix(".lines.ll")
    low = text.with_suffix(".low.mlir")
    command = device_command(context, module, lowering, target, low, has_lines=True)
    _run_lowering(context, source, command, low, lowering, text)
    return text


def with_line(
    context: BuildContext,
    source: Path,
    module: ModuleFile,
    target: Target,
    step: TextStep,
    error: SourceError,
) -> SourceError:
    """Return the error of a step with its line, by running the step on IR with source locations."""
    if context.options.debug:
        return error
    text = lower_with_lines(context, source, module, target)
    output = text.with_suffix(f".{target.arch}.ll")
    try:
        context.executor.step(replace(step, source=text, output=output))
    except type(error) as located:
        return located
    return error


def _run_lowering(
    context: BuildContext,
    source: Path,
    command: Command,
    low: Path,
    lowering: DeviceLowering,
    text: Path,
) -> None:
    executor, alone = context.executor, text.with_suffix(".alone.mlir")

    def diagnose(failed: Completed) -> MlirOffloadError:
        return diagnostics.condense(failed, source=source)

    executor.tool(command, low, decides=True, diagnose=diagnose)
    executor.step(_unwrapping(device.Unwrap, context, lowering, low, alone), decides=True)
    translate = translate_command(context.mlir, alone, text)
    executor.tool(translate, text, decides=True, diagnose=diagnose)


def _unwrapping(
    kind: type[Unwrapping],
    context: BuildContext,
    lowering: DeviceLowering,
    low: Path,
    output: Path,
) -> Unwrapping:
    """Return the step that extracts the device modules of a lowered program."""
    is_for_cpu = lowering == DeviceLowering() and any(target.is_cpu for target in context.targets)
    return kind(
        source=low,
        triple=lowering.triple,
        rdc=bool(context.options.gpu_rdc),
        fp_contract=context.options.device_flags.fp_contract,
        mark_barriers=is_for_cpu,
        output=output,
    )


def _prepare(context: BuildContext, targets: Sequence[Target]) -> None:
    for build in builds_of({target.kind for target in targets}):
        build.prepare(context)


class _Unit(Struct, frozen=True):
    """A device module for one lowering: its MLIR, the lowering, its pass pipeline and its LLVM IR."""

    text: Path
    lowering: DeviceLowering
    pipeline: str
    lowered: Path

    @property
    def passes(self) -> tuple[str, str]:
        """Return the pipeline and the triple, which must be equal for all parts of a joint run."""
        return self.pipeline, self.lowering.triple


def lower_jointly(
    context: BuildContext,
    split: SplitFiles,
    modules: Sequence[ModuleFile],
    host: Path,
) -> frozenset[Path]:
    """Lower the host module to `host`, together with the device modules that need the same passes as the first.

    Return the files that were written: none if the run failed, because lowering each module separately
    finds the error.
    """
    units = [unit for module in modules if not module.objects for unit in _units(context, module)]
    chosen = [unit for unit in units if unit.passes == units[0].passes]
    size = sum(path.stat().st_size for path in (split.host, *(unit.text for unit in chosen)))
    if not chosen or size > _MOST_BYTES:
        return frozenset()
    try:
        _lower(context, split, chosen, host)
    except MlirOffloadError:
        return frozenset()
    return frozenset((host, *(unit.lowered for unit in chosen)))


def _units(context: BuildContext, module: ModuleFile) -> Iterator[_Unit]:
    key = partial(lowering_for, module.module.needs)
    for lowering, targets in groupby(ordered_targets(context, module), key=key):
        target = next(targets)
        lowered = lowered_text(module, lowering)
        command = device_command(context, module, lowering, target, lowered)
        yield _Unit(module.text_for(form_of(target)), lowering, pipeline_of(command), lowered)


def _lower(context: BuildContext, split: SplitFiles, units: Sequence[_Unit], host: Path) -> None:
    """Lower the parts. What fails is lowered again separately, so that its error needs no explanation."""
    executor, llvm = context.executor, context.mlir
    names = (".mlir", ".low.mlir", ".alone.mlir", ".ll")
    joined, low, alone, text = (host.with_name(f"joint{end}") for end in names)
    devices = tuple(unit.text for unit in units)
    executor.step(Join(source=split.host, devices=devices, output=joined), decides=True)
    of_host = host_pipeline_command(
        llvm, split.host, low, uses_async=split.uses_async, debug=context.options.debug
    )
    command = joint_pipeline_command(
        llvm, joined, low, host=pipeline_of(of_host), device=units[0].pipeline
    )
    executor.tool(command, low, decides=True)
    separate = _unwrapping(Separate, context, units[0].lowering, low, alone)
    executor.step(separate, decides=True)
    command = translate_command(llvm, alone, text, is_joint=True)
    executor.tool(command, text, decides=True)
    parts = (host, *(unit.lowered for unit in units))
    executor.step(Part(source=text, parts=parts), decides=True)
