"""A `gpu.module` of a program: its limits, its rewrites and its forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Kind, Target, WorkgroupLimit, find_workgroup_limit
from mlir_offload.translate.gpu_module import (
    GpuModule,
    Kernel,
    KernelKey,
    is_kernel,
    kernel_names,
    rename_kernels,
)
from mlir_offload.translate.kind_lowering import DeviceForm
from mlir_offload.translate.legalize import fast_math
from mlir_offload.translate.legalize.kernel_form import KernelForms
from mlir_offload.translate.legalize.text import expand_device_operations, use_documented_forms
from mlir_offload.translate.legalize.unsupported_ops import (
    check_device_functions,
    check_launch_bounds,
    check_operations,
    check_printed,
    check_workgroup_memory,
)
from mlir_offload.translate.legalize.warpgroup import correct_stored_rows
from mlir_offload.translate.mlir.module import Locations, Module
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Attribute
from mlir_offload.translate.target_attribute import (
    TargetAttribute,
    compatible_targets,
)

_DIVISIONS = frozenset(f"arith.{name}" for name in ("ceildivsi", "ceildivui", "floordivsi"))
# What a module needs for the words that are in its lines.
_NEEDLES = {"bf16": "bf16", "nvgpu": "nvgpu.", "matrix": "!gpu.mma_matrix<"}

_NVVM, _ROCDL = "nvvm.kernel", "rocdl.kernel"


def mark_lowered_kernels(module: Operation, form: DeviceForm) -> None:
    """Give each kernel of a `gpu.module` the mark that its back end knows.

    `gpu.kernel` alone is what gpu.launch_func asks for; mlir-translate makes a plain function of it.
    """
    mark, other = (_ROCDL, _NVVM) if form.is_amdgpu else (_NVVM, _ROCDL)
    for operation in module.operations:
        if operation.name == "llvm.func" and is_kernel(operation) and not operation.has(mark):
            marks = {mark: Attribute("")} if not operation.has(other) else {}
            others = operation.attributes.items()
            operation.signature.attributes = marks | {
                mark if name == other else name: value for name, value in others
            }


def limits_of(targets: Iterable[Target]) -> tuple[WorkgroupLimit, ...]:
    """Return the limits of workgroup memory that are known of the targets."""
    found = (find_workgroup_limit(target.arch) for target in targets)
    return tuple(limit for limit in found if limit is not None)


class DeviceRules(Struct, frozen=True):
    """What holds for every device module of a program."""

    module: Module
    locations: Locations
    forms: tuple[DeviceForm, ...]
    targets: tuple[Target, ...]
    faults: frozenset[str]
    symbols: Mapping[KernelKey, str]
    kernels: KernelForms

    def check(self, operation: Operation, limits: Sequence[WorkgroupLimit]) -> None:
        """Raise SourceError for what no device takes, or not the way it is written."""
        check_device_functions(operation, self.locations)
        check_launch_bounds(operation, self.locations, self.faults)
        check_workgroup_memory(operation, limits, self.locations)
        check_printed(operation, self.locations)
        for dialect in dict.fromkeys(form.dialect for form in self.forms):
            check_operations(operation, "device", self.locations, dialect=dialect)

    def expanded(self, operation: Operation, form: DeviceForm) -> Operation:
        """Return a module in one of the forms."""
        made = operation.clone() if len(self.forms) > 1 else operation
        mark_lowered_kernels(made, form)
        expand_device_operations(made, locations=self.locations, faults=self.faults, form=form)
        return made


def device_module(
    operation: Operation,
    attached: tuple[TargetAttribute, ...],
    leaves: frozenset[Kind],
    rules: DeviceRules,
) -> GpuModule:
    """Rewrite a `gpu.module` for its lowering, and return it in the forms of the rules.

    Raises SourceError for code that exceeds a limit, and for code that the lowering would get wrong.
    """
    name = operation.symbol
    own = {kernel: rules.symbols[name, kernel] for kernel in kernel_names(operation)}
    correct_stored_rows(operation)
    use_documented_forms(operation)
    rules.check(operation, limits_of(compatible_targets(attached, rules.targets)))
    rules.kernels.rewrite_module(operation, rules.locations)
    rename_kernels(operation, own)
    expanded = {form.name: rules.expanded(operation, form) for form in rules.forms}
    is_fast = _is_fast(name, attached, rules.locations.of(operation))
    texts = [(form, rules.module.render_part([made])) for form, made in expanded.items()]
    (_, text), *others = (
        (form, fast_math.with_fast_math(text) if is_fast else text) for form, text in texts
    )
    return GpuModule(
        name=name,
        kernels=tuple(Kernel(kernel, symbol) for kernel, symbol in own.items()),
        text=text,
        needs=frozenset().union(*map(_needs, expanded.values())),
        texts=tuple(others),
        targets=attached,
        leaves=leaves,
    )


def _is_fast(module: str, attached: Iterable[TargetAttribute], location: str) -> bool:
    """Say whether what is attached asks for fast math, which holds for a module's whole text."""
    fast = {"fast" in target.flags for target in attached}
    if len(fast) > 1:
        msg = f"gpu.module @{module} is fast for some of its targets only"
        hint = "write a module for each, or the same flags"
        raise SourceError(msg, hint=hint, location=location)
    return True in fast


def _needs(module: Operation) -> frozenset[str]:
    names = {operation.name for operation in module.walk_inside()}
    needs = {"division"} if names & _DIVISIONS else set()
    text = "\n".join(module.lines())
    needs.update(name for name, words in _NEEDLES.items() if words in text)
    # The others were expanded.
    if "gpu.subgroup_reduce" in names:
        needs |= {"subgroup_reduce", "redux"}
    return frozenset(needs)
