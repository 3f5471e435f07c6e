"""Which device module is compiled for which target, where modules name theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.step.split_file import ModuleFile
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Target
from mlir_offload.translate.target_attribute import compatible_targets


def targets_for(context: BuildContext, module: ModuleFile) -> tuple[Target, ...]:
    """Return the targets of the build that a module is compiled for, or holds code for."""
    if module.objects:
        return tuple(
            target
            for target in context.targets
            if any(one.image.is_compatible(target) for one in module.objects)
        )
    left = (target for target in context.targets if target.kind not in module.module.leaves)
    return compatible_targets(module.module.targets, left)


def select_modules(
    context: BuildContext, source: Path, modules: Sequence[ModuleFile]
) -> tuple[ModuleFile, ...]:
    """Return the modules that are compiled for anything at all.

    Raises SourceError for a kernel that no module has for one of the targets.
    """
    held = {
        (kernel.symbol, target)
        for module in modules
        for target in targets_for(context, module)
        for kernel in module.module.kernels
    }
    for module in modules:
        for kernel in module.module.kernels:
            lacking = [target for target in context.targets if (kernel.symbol, target) not in held]
            if lacking:
                raise _incompatible(module, kernel.name, lacking[0], source)
    return tuple(module for module in modules if targets_for(context, module))


def _incompatible(module: ModuleFile, kernel: str, target: Target, source: Path) -> SourceError:
    if module.objects:
        held = ", ".join(dict.fromkeys(one.image.made_for for one in module.objects))
        wanted = "the CPU" if target.is_cpu else str(target)
        msg = f"{module.title} with kernel @{kernel} holds code for {held}, none for {wanted}"
        hint = (
            "choose that by --offload-arch=, or give the gpu.module that it was made from, which is "
            "compiled for every target"
        )
        return SourceError(msg, hint=hint, location=str(source))
    chips = ", ".join(sorted({item.chip for item in module.module.targets if item.chip}))
    msg = f"gpu.module @{module.module.name} with kernel @{kernel} is attached to {chips}, not {target}"
    hint = f"attach {target} too, leave it out of --offload-arch, or add a variant of the module for it"
    return SourceError(msg, hint=hint, location=str(source))
