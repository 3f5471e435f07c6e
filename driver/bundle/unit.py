"""Lower one source for a bundle: to LLVM IR for the host and for each device kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.build.source import lower_host, split_source
from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.device import lower_module, ordered_targets
from mlir_offload.driver.compile.kind_build import build_of, builds_of, kernels_of
from mlir_offload.driver.compile.normalize import normalize
from mlir_offload.driver.option.command_line import MLIR_SUFFIXES
from mlir_offload.driver.step.image_file import Embed
from mlir_offload.driver.step.split_file import ModuleFile, SplitFiles, refuse_objects
from mlir_offload.driver.system.parallel import parallel_map, run_concurrently
from mlir_offload.offload.host import module_target
from mlir_offload.toolchain.target import Kind, Target
from mlir_offload.translate.kind_lowering import lowering_for


class LoweredDevice(Struct, frozen=True):
    """LLVM IR of a module for the targets of one kind; `lowered` is the IR before its preparation."""

    path: Path
    kind: Kind
    targets: tuple[Target, ...]
    module: ModuleFile
    lowered: Path

    @property
    def needs_libdevice(self) -> bool:
        """Return whether a kernel calls the vendor's device library."""
        return build_of(self.kind).calls_library(self.path.read_text(encoding="utf-8"))


class LoweredUnit(Struct, frozen=True):
    """The lowered modules of one source. `host` has offload entries, but no device images."""

    source: Path
    host: Path
    devices: tuple[LoweredDevice, ...] = ()


def lower_unit(context: BuildContext, number: int, source: Path) -> LoweredUnit:
    """Lower a source. LLVM IR inputs are not changed."""
    if source.suffix not in MLIR_SUFFIXES:
        module_target.check_host_module(source)
        return LoweredUnit(source, source)
    directory = context.workspace / str(number)
    normalize(context, source, directory)
    split = split_source(context, source, directory)
    refuse_objects(split, source, "a bundle")
    tasks = [partial(_lower_device, context, source, module) for module in split.modules]
    made, host = run_concurrently(
        partial(parallel_map, tasks), partial(lower_host, context, source, split, directory)
    )
    devices = tuple(device for lowered in made for device in lowered)
    return LoweredUnit(source, _annotate(context, source, split, devices, host), devices)


def _lower_device(
    context: BuildContext, source: Path, module: ModuleFile
) -> tuple[LoweredDevice, ...]:
    """Lower a module once for all targets with the same lowering."""
    groups = groupby(
        ordered_targets(context, module), key=partial(lowering_for, module.module.needs)
    )
    found: list[LoweredDevice] = []
    for lowering, group in groups:
        targets = tuple(group)
        lowered = lower_module(context, source, module, lowering, targets[0])
        found += _prepared(context, source, module, lowered, targets)
    return tuple(found)


def _prepared(
    context: BuildContext,
    source: Path,
    module: ModuleFile,
    lowered: Path,
    targets: Sequence[Target],
) -> Iterator[LoweredDevice]:
    for build in builds_of({target.kind for target in targets}):
        own = tuple(target for target in targets if target.kind is build.name)
        path = build.lower_bundled(context, source, module, lowered)
        yield LoweredDevice(path, build.name, own, module, lowered)


def _annotate(
    context: BuildContext,
    source: Path,
    split: SplitFiles,
    devices: Sequence[LoweredDevice],
    host: Path,
) -> Path:
    """Register the kernels; the images are embedded on the link host."""
    output = host.with_name("host.embedded.ll")
    lowered = {device.module.path: device.lowered for device in devices}
    context.executor.step(
        Embed(
            source=host,
            kinds=tuple(dict.fromkeys(device.kind for device in devices)),
            devices=tuple(lowered[module.path] for module in split.modules),
            kernels=tuple(kernel for module in split.modules for kernel in kernels_of(module)),
            declared=split.declared,
            location=str(source),
            for_clang=context.for_clang,
            output=output,
        )
    )
    return context.text_for(context.consumer, output, source)
