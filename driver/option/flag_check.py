"""Options for device code against what is compiled for and linked: what clashes, what has no effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlir_offload.driver.message.report import show_note, show_warning
from mlir_offload.driver.option import unused
from mlir_offload.driver.option.compile_options import CompileOptions
from mlir_offload.driver.option.device_flags import ALL_PTX
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.target import DEVICE_KINDS, Kind, Target, kind_of_image, uses_cuda

if TYPE_CHECKING:
    from mlir_offload.offload.link.objects import ObjectContents


def check_flags(
    options: CompileOptions, targets: Sequence[Target], given: Sequence[ObjectContents]
) -> None:
    """Raise UsageError where the options ask for what these devices do not have; note what is unused."""
    if not targets and not given:
        return
    images = [image for item in given for image in item.images]
    _check_ptx(options, targets)
    held = [(kind_of_image(image.kind, image.triple), image.arch) for image in images]
    used = [*((target.kind, target.arch) for target in targets), *held]
    for known in DEVICE_KINDS:
        known.check_archs([arch for kind, arch in used if kind is known.name])
    kinds = {kind for kind, _ in used if kind is not None}
    _check_ptxas(options, kinds)


def _check_ptxas(options: CompileOptions, kinds: set[Kind]) -> None:
    """Warn of arguments for ptxas if no device or no step of this call uses them."""
    arguments = options.device_flags.ptxas_arguments
    if not arguments or not kinds:
        return
    if not uses_cuda(kinds):
        names = " ".join(arguments)
        show_warning(
            f"arguments for ptxas unused during compilation: '{names}' {unused.UNUSED}", ""
        )
    elif not options.needs_ptxas:
        show_note(
            f"-Xptxas {arguments[0]} is unused: the object contains bitcode, which the link compiles;"
            " with --device-code=object, -c runs ptxas"
        )


def _check_ptx(options: CompileOptions, targets: Sequence[Target]) -> None:
    wanted = options.device_flags.ptx or ()
    archs = {target.arch for target in targets}
    missing = next((arch for arch in wanted if arch not in {ALL_PTX, *archs}), None)
    if missing and targets:
        msg = f"--cuda-include-ptx={missing}: nothing is compiled for {missing}"
        raise UsageError(msg, hint=f"add {missing} to --offload-arch=")
    if wanted and not options.makes_final_objects:
        show_note("--cuda-include-ptx= is unused: without -fno-gpu-rdc NVIDIA's tools drop PTX")
