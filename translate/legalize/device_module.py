"""Legalize a `gpu.module`: check its limits, and rewrite operations that upstream passes do not lower."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Kind, Target, WorkgroupLimit, find_workgroup_limit
from mlir_offload.translate import fast_math
from mlir_offload.translate.gpu_module import (
    GpuModule,
    Kernel,
    KernelKey,
    is_kernel,
    kernel_names,
    rename_kernels,
)
from mlir_offload.translate.kernel import WIDE
from mlir_offload.translate.kind_lowering import (
    NVVM_FORM,
    SPIRV_FORM,
    DeviceForm,
    TargetAttribute,
    compatible_targets,
    fuse_bfloat,
)
from mlir_offload.translate.legalize import spirv_integer
from mlir_offload.translate.legalize.kernel_form import KernelForms
from mlir_offload.translate.legalize.unsupported_ops import (
    check_device_functions,
    check_launch_bounds,
    check_operations,
    check_values,
    check_workgroup_memory,
)
from mlir_offload.translate.mlir.module import Locations, Module
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import (
    Attribute,
    with_dialect_types,
    with_memref_space,
)

if TYPE_CHECKING:
    from mlir_offload.translate.legalize.rewriter import DevicePattern, DeviceRewriter

_PRIVATE_NUMBERS = ("5", "5 : i32", "5 : i64")
_PRIVATE = "#gpu.address_space<private>"
_GLOBAL_NUMBERS = ("1", "1 : i32", "1 : i64", "#gpu.address_space<global>")
_KERNEL = "gpu.func"
_KERNEL_ATTRIBUTES = {"kernel": Attribute(""), "workgroup_attributions": Attribute("0 : i64")}
_FUNCTION, _RETURN = "func.func", "func.return"
_LOWERED_FUNCTION = "llvm.func"
_USED = frozenset({"llvm.used", "llvm.compiler.used"})
# gpu.known_block_size and gpu.known_grid_size, which are inherent attributes of gpu.func.
_KNOWN = "gpu.known_"
_ALL_REDUCE = "gpu.all_reduce"
_NVGPU = "nvgpu"
_PACKAGE = "mlir_offload.translate.legalize"
# A pseudo bug: the back ends of some targets round a fused product and sum of bf16 twice.
_SHORT_FMA = "bfloat_fma"
# Another one: `index` has fewer than 64 bits.
_NARROW_INDEX = "narrow_index"
_MATH, _FMA, _BFLOAT, _OF_BFLOATS = "math.", "math.fma", "bf16", "xbf16>"
# The module and the function of the pattern for each operation. Modules are loaded on demand, because most
# kernels have none of these operations.
_PATTERNS = {
    # The pass arith-expand of LLVM 19 overflows, and expands maximumf and minimumf of the module to comparisons.
    "arith.ceildivsi": "integer.ceiling",
    "arith.ceildivui": "integer.unsigned_ceiling",
    "arith.floordivsi": "integer.floor",
    # The pass convert-index-to-llvm negates the dividend and divides the least number by -1.
    "index.ceildivs": "integer.ceiling",
    "index.floordivs": "integer.floor",
    "arith.addui_extended": "integer.extended_sum",
    "arith.mulsi_extended": "integer.extended_product",
    "arith.mului_extended": "integer.extended_product",
    "arith.extf": "rounding.extended",
    "arith.sitofp": "rounding.from_integer",
    "arith.truncf": "rounding.truncated",
    "arith.uitofp": "rounding.from_integer",
    "gpu.all_reduce": "block_reduction.all_reduce",
    "gpu.global_id": "identifier.global_id",
    "gpu.num_subgroups": "identifier.num_subgroups",
    "gpu.printf": "assertion.printf",
    "gpu.rotate": "subgroup.rotate_lanes",
    "gpu.shuffle": "subgroup.shuffle_lanes",
    "gpu.subgroup_id": "identifier.subgroup_id",
    "gpu.subgroup_reduce": "reduction.subgroup_reduce",
    "gpu.subgroup_size": "identifier.subgroup_size",
    "gpu.warp_execute_on_lane_0": "warp_execute.execute_on_lane_zero",
    # The name in LLVM 19.
    "vector.warp_execute_on_lane_0": "warp_execute.execute_on_lane_zero",
    "memref.copy": "memory.copy",
    "memref.dealloc": "memory.release",
    "math.absi": "integer.absolute",
    "math.ctlz": "integer.zeros",
    "math.cttz": "integer.zeros",
    "math.fpowi": "math.float_power",
    "math.ipowi": "math.integer_power",
    "math.isnormal": "math.is_normal",
    "vector.bitcast": "vector_value.bitcast",
    "vector.extract": "vector_value.extract",
    "vector.insert": "vector_value.insert",
    "vector.load": "vector.load",
    "vector.mask": "vector_mask.mask",
    "vector.store": "vector.store",
    "vector.type_cast": "vector_value.type_cast",
}
_MOVES = ("transfer_read", "transfer_write", "maskedload", "maskedstore", "expandload", "compressstore")  # fmt: skip
_PATTERNS |= dict.fromkeys(
    ("affine.vector_load", "affine.vector_store", *(f"vector.{name}" for name in _MOVES)),
    "vector.access",
)
# convert-gpu-to-nvvm and convert-gpu-to-rocdl reject these, but lower their equivalents in the math dialect.
_LLVM_MATH = ("copysign", "cos", "exp", "exp2", "fabs", "ceil", "floor", "log", "log10", "log2", "pow", "round", "roundeven", "sin", "sqrt")  # fmt: skip
_PATTERNS |= dict.fromkeys(
    ("llvm.frem", *(f"llvm.intr.{name}" for name in _LLVM_MATH)), "math.of_llvm"
)
_FOR_AMDGPU = {
    "math.clampf": "math.clamp_on_amdgpu",
    "math.isinf": "math.is_infinite",
    "math.sincos": "math.sine_and_cosine",
}
_NOT_AMDGPU = {
    "gpu.subgroup_broadcast": "subgroup.broadcast_lane",
    "gpu.subgroup_mma_elementwise": "matrix.elementwise",
    "math.clampf": "math.clamp",
    "math.fma": "math.fused",
}
_FOR_SPIRV = {
    "memref.prefetch": "memory.drop",
    # arith-emulate-unsupported-floats permits that a following operation takes the sum before it is rounded.
    **dict.fromkeys(
        [f"arith.{name}f" for name in ("add", "sub", "mul", "div", "rem", "maxnum", "minnum")],
        "extremum.in_single",
    ),
    "vector.reduction": "extremum.reduced_in_order",
    "arith.fptosi": "integer.truth_of_float",
    "arith.fptoui": "integer.truth_of_float",
}
# For modules that arith-expand lowers.
_EXTREMA = dict.fromkeys(("arith.maximumf", "arith.minimumf"), "extremum.intrinsic")
# For NVIDIA GPUs with a release that does not select, or does not round, these operations on bf16.
_OF_BFLOAT = dict.fromkeys(("arith.maximumf", "arith.minimumf", "arith.remf"), "extremum.in_single")
_BFLOAT_FAULT = "bfloat_operations"
# The key of the pattern for operations of the math dialect on bf16, if they have one.
_OTHERS = "math.bf16"
# The patterns of these are for all types.
_SAME_FOR_BFLOAT = frozenset({_FMA, "math.clampf", "math.fpowi", "math.isnormal"})
_MATRICES = "math.matrix"
_OF_FAULTS = {
    _NARROW_INDEX: dict.fromkeys(("math.ctlz", "math.cttz"), "integer.narrow_zeros"),
    "atomic_extrema": {"memref.atomic_rmw": "memory.atomic_extremum"},
    "folded_nan": dict.fromkeys(("arith.maxnumf", "arith.minnumf"), "extremum.without_folding"),
    "math_of_matrices": {_MATRICES: "math.of_elements"},
}
_OF_WIDE_INDEX = dict.fromkeys(
    ("arith.mulsi_extended", "arith.mului_extended"), "integer.extended_product_of_index"
)
_REDUCTION = "gpu.subgroup_reduce"
# Present before the lowering only if a pipeline of the user has lowered a structure.
_EXTRACTION = "llvm.extractvalue"
# The needs of a module that are identified by words in its text.
_NEEDLES = {
    "sizes": "vector.transfer_",
    "bf16": "bf16",
    "nvgpu": "nvgpu.",
    "matrix": "!gpu.mma_matrix<",
}

_NVVM, _ROCDL = "nvvm.kernel", "rocdl.kernel"


def use_gpu_functions(module: Operation) -> None:
    """Convert each kernel of the func dialect to a gpu.func, the only function that passes lower to a kernel.

    The spelling of the kernel marker depends on the release. All releases read an operation without
    properties, and convert those attributes to properties that they define as such.
    """
    for function in module.operations:
        if function.name != _FUNCTION or function.is_declaration or not is_kernel(function):
            continue
        signature = function.signature
        given = {
            name.removeprefix("gpu.") if name.startswith(_KNOWN) else name: value
            for name, value in (signature.properties | signature.attributes).items()
        }
        signature.attributes = given | _KERNEL_ATTRIBUTES
        signature.properties = {}
        function.name = _KERNEL
        for block in function.regions[0].blocks:
            if block.operations[-1].name == _RETURN:
                block.operations[-1].name = "gpu.return"


def use_documented_forms(module: Operation) -> None:
    """Rewrite a `gpu.module` to forms that have a lowering."""
    module.edit_text(lambda text: with_memref_space(text, _PRIVATE_NUMBERS, _PRIVATE))
    _lower_nvgpu_types(module)
    # Not needed: the image keeps everything that kernels use and that has an offload entry.
    module.operations[:] = [one for one in module.operations if one.symbol not in _USED]
    for function in module.operations:
        if function.name == _LOWERED_FUNCTION:
            load_member("imported.use_any_device")(function)
        elif any(name.startswith("rocdl.") for name in function.signature.attributes):
            load_member("imported.mark_given_limit")(function)
    if any(one.name == _ALL_REDUCE for one in module.walk_inside()):
        load_member("uniform_reduction.mark_reductions")(module)


def use_default_space(operation: Operation) -> None:
    """Use the default memory space for global memory in a host operation."""
    operation.edit_text(lambda text: with_memref_space(text, _GLOBAL_NUMBERS, ""))
    _lower_nvgpu_types(operation)


def _lower_nvgpu_types(operation: Operation) -> None:
    """Convert the nvgpu types of parameters and arguments, if the operations on them are already lowered."""
    if not any(inner.name.startswith(f"{_NVGPU}.") for inner in operation.walk_inside()):
        operation.edit_text(lambda text: with_dialect_types(text, _NVGPU, _lowered_type))


def _lowered_type(kind: Attribute) -> str:
    return str(load_member("nvgpu_types.lowered_type")(kind))


def expand_device_operations(
    module: Operation,
    *,
    locations: Locations,
    faults: frozenset[str],
    form: DeviceForm = NVVM_FORM,
) -> None:
    """Rewrite the operations of a `gpu.module` that have no lowering for a form.

    Subgroups are numbered along x, then y, then z, as in PTX. For NVIDIA GPUs, `cf.assert` is expanded
    if the release lowers it wrongly (`assert_outside_module`).
    """
    patterns = patterns_for(form, faults, _needs(module))
    found = [one for one in module.walk_inside() if _pattern_of(one, patterns, form)]
    if not found:
        return
    reductions = [one for one in found if one.name == _REDUCTION]
    if (
        reductions
        and form.has_assertions
        and all(map(load_member("reduction.is_redux"), reductions))
    ):
        patterns[_REDUCTION] = "reduction.subgroup_redux"
    rewriter: DeviceRewriter = load_member("rewriter.DeviceRewriter")(locations, form)

    def find(operation: Operation) -> DevicePattern | None:
        name = _pattern_of(operation, patterns, form)
        return load_member(name) if name else None

    rewriter.rewrite_module(module, find)


def patterns_for(
    form: DeviceForm, faults: frozenset[str], needs: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Return the patterns for a form and a module with these needs, by operation name."""
    found = {**_PATTERNS, **(_FOR_AMDGPU if form.is_amdgpu else _NOT_AMDGPU)}
    if form.name == SPIRV_FORM.name:
        found |= _FOR_SPIRV | ({} if _NARROW_INDEX in faults else _OF_WIDE_INDEX)
    if _BFLOAT_FAULT in faults and not form.is_amdgpu:
        found |= _OF_BFLOAT
    if form.name == SPIRV_FORM.name and _BFLOAT in needs:
        found |= _EXTREMA
    if form.name == SPIRV_FORM.name or _BFLOAT_FAULT in faults:
        found[_OTHERS] = "math.widened_bfloat"
    for fault in faults & _OF_FAULTS.keys():
        found |= _OF_FAULTS[fault]
    if _SHORT_FMA in faults:
        found["math.fma"] = "math.exactly_fused"
    if not form.has_assertions:
        found["cf.assert"] = "assertion.printed_assertion"
    elif not form.is_amdgpu:
        found["gpu.cluster_dim_blocks"] = "identifier.cluster_dim_blocks"
        if "assert_outside_module" in faults:
            found["cf.assert"] = "assertion.called_assertion"
    return found


def _pattern_of(operation: Operation, patterns: Mapping[str, str], form: DeviceForm) -> str:
    """Return the name of the pattern for an operation, an empty string for none."""
    if form.name == SPIRV_FORM.name and operation.name == _FMA and _BFLOAT in operation.head:
        return "math.fused_in_single"
    if _OTHERS in patterns and operation.name not in _SAME_FOR_BFLOAT and _is_on_bfloat(operation):
        return patterns[_OTHERS]
    found = patterns.get(operation.name, "")
    is_math = not found and operation.name.startswith(_MATH)
    return patterns.get(_MATRICES, "") if is_math and "vector<" in operation.head else found


def _is_on_bfloat(operation: Operation) -> bool:
    is_math = operation.name.startswith(_MATH) and len(operation.result_types) == 1
    return is_math and any(
        kind == _BFLOAT or kind.endswith(_OF_BFLOATS) for kind in operation.operand_types
    )


@cache
def load_member(name: str) -> Any:
    """Load a member of a module in this package: `module.member`."""
    module, _, member = name.partition(".")
    return getattr(import_module(f"{_PACKAGE}.{module}"), member)


def mark_lowered_kernels(module: Operation, form: DeviceForm) -> None:
    """Add the kernel marker of the target dialect to each kernel of a `gpu.module`.

    gpu.launch_func requires only `gpu.kernel`, but mlir-translate emits a plain function for it.
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
    """Return the known workgroup memory limits of the targets."""
    found = (find_workgroup_limit(target.arch) for target in targets)
    return tuple(limit for limit in found if limit is not None)


class DeviceRules(Struct, frozen=True):
    """The parameters that are common to all device modules of a program."""

    module: Module
    locations: Locations
    forms: tuple[DeviceForm, ...]
    targets: tuple[Target, ...]
    faults: frozenset[str]
    symbols: Mapping[KernelKey, str]
    kernels: KernelForms

    def check(self, operation: Operation, limits: Sequence[WorkgroupLimit]) -> None:
        """Raise SourceError for code that the devices do not support, or that exceeds their limits."""
        check_device_functions(operation, self.locations)
        check_launch_bounds(operation, self.locations, self.faults)
        check_workgroup_memory(operation, limits, self.locations)
        check_values(operation, self.locations)
        for dialect in dict.fromkeys(form.dialect for form in self.forms):
            check_operations(operation, "device", self.locations, dialect=dialect)
        if SPIRV_FORM in self.forms:
            spirv_integer.check_integers(operation, self.locations)

    def expanded(self, operation: Operation, form: DeviceForm) -> Operation:
        """Return the module rewritten for a form."""
        made = operation.clone() if len(self.forms) > 1 else operation
        mark_lowered_kernels(made, form)
        faults = self.faults if fuse_bfloat(self.targets, form) else self.faults | {_SHORT_FMA}
        if self.kernels.index_bits != WIDE:
            faults |= {_NARROW_INDEX}
        expand_device_operations(made, locations=self.locations, faults=faults, form=form)
        return made


def device_module(
    operation: Operation,
    attached: tuple[TargetAttribute, ...],
    leaves: frozenset[Kind],
    rules: DeviceRules,
) -> GpuModule:
    """Rewrite a `gpu.module` for its lowering, and return it in all forms of the rules.

    Raises SourceError for code that exceeds a limit, and for code that would be lowered wrongly.
    """
    name = operation.symbol
    own = {kernel: rules.symbols[name, kernel] for kernel in kernel_names(operation)}
    if any(inner.name == _EXTRACTION for inner in operation.walk_inside()):
        load_member("warpgroup.correct_stored_rows")(operation)
    if any(function.name == _LOWERED_FUNCTION for function in operation.operations):
        load_member("imported.check_wavefronts")(operation, rules.forms, rules.locations)
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
    """Return whether the target attributes request fast math, which applies to the whole module."""
    fast = {"fast" in target.flags for target in attached}
    if len(fast) > 1:
        msg = f"gpu.module @{module} is fast for some of its targets only"
        hint = "write a module for each, or the same flags"
        raise SourceError(msg, hint=hint, location=location)
    return True in fast


def _needs(module: Operation) -> frozenset[str]:
    names = {operation.name for operation in module.walk_inside()}
    text = "\n".join(module.lines())
    needs = {name for name, words in _NEEDLES.items() if words in text}
    # Other reductions were expanded.
    if "gpu.subgroup_reduce" in names:
        needs |= {"subgroup_reduce", "redux"}
    return frozenset(needs)
