"""Lower host and device code of a small program together: one mlir-opt and one mlir-translate for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.device import device_command, lowered_text, ordered_targets
from mlir_offload.driver.step.program import Join, Part, Separate
from mlir_offload.driver.step.split_file import ModuleFile, SplitFiles
from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.process import Completed
from mlir_offload.translate import diagnostics
from mlir_offload.translate.kind_lowering import DeviceLowering, form_of, lowering_for
from mlir_offload.translate.lower import (
    host_pipeline_command,
    joint_pipeline_command,
    pipeline_of,
    translate_command,
)

# The start of a tool counts for small programs only; large ones are faster side by side.
_MOST_BYTES = 1 << 18


class _Unit(Struct, frozen=True):
    """A device module in the form for some targets: its text, its pipeline, its LLVM IR."""

    text: Path
    lowering: DeviceLowering
    pipeline: str
    lowered: Path

    @property
    def passes(self) -> tuple[str, str]:
        """Return what has to be equal for all parts: their passes, and what they are made for."""
        return self.pipeline, self.lowering.triple


def lower_jointly(
    context: BuildContext,
    source: Path,
    split: SplitFiles,
    modules: Sequence[ModuleFile],
    host: Path,
) -> frozenset[Path]:
    """Lower the host text to `host`, with the device modules that get the same passes as the first.

    Return what was made: nothing where it failed, for the error that is found of each part alone.
    """
    units = [unit for module in modules if not module.objects for unit in _units(context, module)]
    chosen = [unit for unit in units if unit.passes == units[0].passes]
    size = sum(path.stat().st_size for path in (split.host, *(unit.text for unit in chosen)))
    if not chosen or size > _MOST_BYTES:
        return frozenset()
    try:
        _lower(context, source, split, chosen, host)
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


def _lower(
    context: BuildContext, source: Path, split: SplitFiles, units: Sequence[_Unit], host: Path
) -> None:
    executor, llvm = context.executor, context.mlir
    names = (".mlir", ".low.mlir", ".alone.mlir", ".ll")
    joined, low, alone, text = (host.with_name(f"joint{end}") for end in names)

    def diagnose(failed: Completed) -> MlirOffloadError:
        return diagnostics.condense(failed, source=source)

    devices = tuple(unit.text for unit in units)
    executor.step(Join(source=split.host, devices=devices, output=joined), decides=True)
    of_host = host_pipeline_command(
        llvm, split.host, low, uses_async=split.uses_async, debug=context.options.debug
    )
    command = joint_pipeline_command(
        llvm, joined, low, host=pipeline_of(of_host), device=units[0].pipeline
    )
    executor.tool(command, low, decides=True, diagnose=diagnose)
    separate = Separate(
        source=low,
        triple=units[0].lowering.triple,
        rdc=bool(context.options.gpu_rdc),
        fp_contract=context.options.device_flags.fp_contract,
        output=alone,
    )
    executor.step(separate, decides=True)
    command = translate_command(llvm, alone, text, is_joint=True)
    executor.tool(command, text, decides=True, diagnose=diagnose)
    parts = (host, *(unit.lowered for unit in units))
    executor.step(Part(source=text, parts=parts), decides=True)
