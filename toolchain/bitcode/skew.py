"""Check a bitcode module for constructs that another release of LLVM rejects or misinterprets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from msgspec import Struct

from mlir_offload.toolchain.bitcode import (
    amdgpu_skew,
    constant,
    data_layout,
    memory_effect,
    metadata,
    parameter,
)
from mlir_offload.toolchain.bitcode.attribute import FUNCTION_PLACE, Attribute, AttributeTable
from mlir_offload.toolchain.bitcode.code import TypeCode
from mlir_offload.toolchain.bitcode.global_value import BitcodeFunction
from mlir_offload.toolchain.bitcode.module import BitcodeModule
from mlir_offload.toolchain.bitcode.record_skew import check_records
from mlir_offload.toolchain.bitcode.type import BitcodeType
from mlir_offload.toolchain.skew.fact import Consumer, Skew
from mlir_offload.toolchain.skew.identity import parse_signature
from mlir_offload.toolchain.skew.limits import load_limits, newest_numbers
from mlir_offload.toolchain.skew.symbol import (
    annotation_values,
    check_intrinsic,
    check_openmp,
    check_openmp_structure,
    lost_values,
)

_MEMORY = 86
_WIDE_BITS = 128
# The number of registers in which x86-64 passes integer arguments.
_REGISTERS = 6
_WIDE_LAYOUT = "i128:128"
_X86 = ("x86_64", "i386", "i686")
_STRUCTS = (TypeCode.STRUCT_ANONYMOUS, TypeCode.STRUCT_NAMED)
_NVIDIA, _AMD = "nvptx", "amdgcn"
_PTX_KERNEL = 71
_ANNOTATIONS = "nvvm.annotations"
_OPENMP = "__kmpc_"

_BACK_END = "BC025"
_BOUNDS = ("nvvm.maxntid", "nvvm.reqntid")


def check_module(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    """Yield each construct of a module that the consumer rejects or misinterprets.

    The checks do not depend on the producer string, because a fork may claim any release.
    """
    if module.epoch:
        yield Skew("BC001", {"epoch": module.epoch})
    checks = _checks_for(module.triple, consumer.llvm)
    for check in checks.of_any_writer:
        yield from check(module, consumer)
    writer = parse_signature(module.producer)
    is_release = writer.major is not None and not (writer.vendor or writer.is_development)
    is_newer = not is_release or (writer.major or 0) > consumer.llvm
    found = [skew for check in checks.of_newer for skew in check(module, consumer)]
    # Limits of the back end are excluded if the module is not newer: the release has them for its own modules too,
    # and reports them itself.
    yield from (skew for skew in found if is_newer or skew.rule != _BACK_END)
    if not is_newer:
        return
    if module.producer and not is_release:
        yield Skew("BC004", {"producer": module.producer, "consumer": consumer.llvm})
    elif not found and writer.major is not None:
        rule = "BC002" if consumer.llvm in load_limits().readers else "BC027"
        yield Skew(rule, {"producer": module.producer, "consumer": consumer.llvm})


def _summary(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    newest = newest_numbers(consumer.llvm)["summaries"]
    version = max(module.thin_summary or 0, module.full_summary or 0)
    if version > newest:
        yield Skew("BC006", {"version": version, "consumer": consumer.llvm, "newest": newest})


def _types(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    newest = newest_numbers(consumer.llvm)["type_codes"]
    for one in module.types.types:
        if one.code > newest:
            steps = load_limits().newest["type_codes"]
            needed = steps.first_release(one.code) or "of a later release"
            construct = f'target("{one.name}")' if one.code == TypeCode.TARGET else f"{one.code}"
            values = {"construct": construct, "needed": needed, "consumer": consumer.llvm}
            yield Skew("BC022", values)
            return


def _attributes(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    """Report each attribute once, with a defined function that has it; without one for calls and declarations."""
    if not _has_skew(module.attributes, consumer.llvm):
        return
    users: dict[int, str] = {}
    for function in module.functions:
        groups = module.attributes[function.attributes].groups
        for group in groups.values() if not function.is_declaration else ():
            for one in group.attributes.values():
                users.setdefault(id(one), function.name)
    seen: set[tuple[str, object]] = set()
    for group in module.attributes.groups():
        for one in group.attributes.values():
            skew = _attribute(one, users.get(id(one), ""), consumer.llvm)
            if skew is not None and (skew.rule, one.kind) not in seen:
                seen.add((skew.rule, one.kind))
                yield skew


@lru_cache(maxsize=8)
def _has_skew(table: AttributeTable, release: int) -> bool:
    """Return whether a table contains an attribute to report. Cached: modules of one writer often share the table."""
    groups = (group.attributes.values() for group in table.groups())
    return any(_attribute(one, "", release) is not None for each in groups for one in each)


def _attribute(one: Attribute, function: str, release: int) -> Skew | None:
    table = load_limits()
    if not isinstance(one.kind, int):
        since = table.attribute_values.get((one.kind, str(one.value)), 0)
        if release >= since:
            return None
        name = f'"{one.kind}"="{one.value}"'
        return Skew("BC035", {"name": name, "needed": since, "consumer": release}, function)
    row = table.attributes.get(one.kind)
    newest = newest_numbers(release)["attribute_kinds"]
    is_unknown = one.kind > newest or one.kind in table.unread_attributes
    known = row.forms(release) if row else () if is_unknown else (one.form,)
    if one.form not in known:
        name = row.name if row else f"number {one.kind}"
        needed = (row.first_release(one.form) if row else None) or "of a later release"
        values: dict[str, object] = {"name": name, "needed": needed, "consumer": release}
        rule, number = ("BC011", one.form) if known else ("BC010", one.kind)
        return Skew(rule, values | {"number": number, "newest": newest}, function)
    if one.kind == _MEMORY and isinstance(one.value, int):
        lost = memory_effect.lost_effects(one.value, release)
        if lost:
            values = {"effects": ", ".join(lost), "consumer": release}
            return Skew("BC013", values, function)
    return None


def _conventions(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    """Report each calling convention that the consumer does not support, once.

    The x86 back end treats it as the C convention, which is wrong only for external functions. Therefore only
    declarations are reported there.
    """
    is_taken_for_c = module.triple.startswith(_X86)
    table = load_limits().conventions
    seen: set[int] = set()
    for function in module.functions:
        number = function.calling_convention
        row = table.get(number)
        if row is None or row.since <= consumer.llvm or number in seen:
            continue
        if function.is_declaration or not is_taken_for_c:
            seen.add(number)
            values = {"name": row.name, "needed": row.since, "consumer": consumer.llvm}
            yield Skew("BC026", values, function.name)


def _launch_bounds(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    """Report launch bounds in attributes or annotations that a release ignores."""
    table = load_limits()
    annotated: dict[str, set[object]] | None = None
    if consumer.llvm < table.all_annotations_since:
        annotated = _annotations(module)
    for function in module.functions:
        given = [name for name in table.launch if _string(module, function, name) is not None]
        if given and annotated is None:
            annotated = _annotations(module)
        own = (annotated or {}).get(function.name, set())
        # All releases ignore the bounds of functions that are not kernels.
        if function.calling_convention != _PTX_KERNEL and "kernel" not in own:
            continue
        lost = table.lost_bounds(given, own, consumer.llvm)
        if lost:
            yield Skew("BC015", lost_values(lost, given, consumer), function.name)


def _parameters(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    """Report parameters in constant memory that a release copies, or whose annotation crashes its back end."""
    for row in load_limits().parameters:
        if consumer.llvm >= row.since:
            continue
        annotated = {name for name, own in _annotations(module).items() if row.annotation in own}
        if consumer.llvm < row.annotation_since:
            for name in annotated:
                yield Skew("BC025", annotation_values(row, consumer), name)
            annotated.clear()
        for function in parameter.copied_parameters(module, row.attribute):
            if function.name not in annotated:
                values = {"name": row.attribute, "consumer": consumer.llvm}
                yield Skew("BC033", values, function.name)


def _annotations(module: BitcodeModule) -> dict[str, set[object]]:
    """Return the names of the nvvm.annotations of each function."""
    found: dict[str, set[object]] = {}
    for operands in _metadata(module).named(_ANNOTATIONS):
        if operands and isinstance(operands[0], BitcodeFunction):
            found.setdefault(operands[0].name, set()).update(operands[1::2])
    return found


def _conflicting_bounds(module: BitcodeModule, _consumer: Consumer) -> Iterator[Skew]:
    if not _has_kinds(module.attributes, _BOUNDS):
        return
    for function in module.functions:
        if all(_string(module, function, name) for name in _BOUNDS):
            yield Skew("NV009", {}, function.name)


@lru_cache(maxsize=8)
def _has_kinds(table: AttributeTable, kinds: tuple[str, ...]) -> bool:
    """Return whether a table contains attributes of all these kinds. Cached like `_has_skew`."""
    return {kind for group in table.groups() for kind in group.attributes}.issuperset(kinds)


def _string(module: BitcodeModule, function: BitcodeFunction, name: str) -> str | None:
    found = module.attributes[function.attributes].find(FUNCTION_PLACE, name)
    return str(found.value or "") if found else None


def _intrinsics(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    for function in module.functions:
        if function.is_declaration and function.is_intrinsic:
            signature = module.types.spell(function.type)
            skew = check_intrinsic(function.name, signature, consumer, module.triple)
            if skew is None:
                continue
            # Bitcode may contain unused declarations.
            constants = constant.ConstantTable(module)
            if amdgpu_skew.is_used(module, constants, function.name):
                yield skew


def _openmp(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    """Report calls of the OpenMP runtime and structures whose layout differs from that of the consumer's code."""
    for function in module.functions:
        if function.is_declaration and function.name.startswith(_OPENMP):
            parameters = len(module.parameter_types(function))
            skew = check_openmp(function.name, parameters, consumer)
            if skew is not None:
                yield skew
    for one in module.types.types:
        if one.code == TypeCode.STRUCT_NAMED:
            skew = check_openmp_structure(one.name, len(one.elements), consumer)
            if skew is not None:
                yield skew


def _wide_integers(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    """Report i128 if its alignment matters: in structures, and for arguments in memory."""
    since = load_limits().wide_integer_since
    layout = module.data_layout
    if _WIDE_LAYOUT not in layout:
        return
    older = "-".join(part for part in layout.split("-") if part != _WIDE_LAYOUT)
    if _resized(module, layout, older) or _has_many_arguments(module):
        yield Skew("BC018", {"consumer": consumer.llvm, "since": since})


def _narrow_integers(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    """Report structures whose size changes because a newer release replaces the data layout of the module."""
    since, layout = load_limits().wide_integer_since, module.data_layout
    if not layout or _WIDE_LAYOUT in layout:
        return
    sizes = _resized(module, layout, f"{layout}-{_WIDE_LAYOUT}")
    if sizes:
        before, after = sizes
        values = {"consumer": consumer.llvm, "since": since, "before": before, "after": after}
        yield Skew("BC024", values)


def _has_many_arguments(module: BitcodeModule) -> bool:
    """Return whether a function type has an i128 parameter, and parameters that do not fit in registers."""
    types = module.types
    for one in types.types:
        if one.code == TypeCode.FUNCTION:
            parameters = [types[element] for element in one.elements[1:]]
            wide = sum(map(_is_wide, parameters))
            if wide and len(parameters) + wide > _REGISTERS:
                return True
    return False


def _is_wide(one: BitcodeType) -> bool:
    return one.code == TypeCode.INTEGER and one.number == _WIDE_BITS


def _resized(module: BitcodeModule, layout: str, other: str) -> tuple[int, int] | None:
    """Return both sizes of the first structure whose size differs between two data layouts, None if none does."""
    table = module.types
    if not any(map(_is_wide, table.types)):
        return None
    was, becomes = (
        data_layout.TypeSizes(table, data_layout.parse_data_layout(one)) for one in (layout, other)
    )
    for number, one in enumerate(table.types):
        if one.code in _STRUCTS:
            before, after = was(number), becomes(number)
            if before and after and before.size_bytes != after.size_bytes:
                return before.size_bytes, after.size_bytes
    return None


def _metadata(module: BitcodeModule) -> metadata.MetadataTable:
    return metadata.MetadataTable(module, constant.ConstantTable(module))


_Check = Callable[[BitcodeModule, Consumer], Iterator[Skew]]


class _Checks(Struct, frozen=True):
    """The checks for modules of any writer, and the checks for constructs that a newer release may emit."""

    of_any_writer: tuple[_Check, ...]
    of_newer: tuple[_Check, ...]


@lru_cache(maxsize=64)
def _checks_for(triple: str, release: int) -> _Checks:
    """Return the checks that can report something for a target and a release."""
    limits = load_limits()
    is_nvidia, is_x86 = triple.startswith(_NVIDIA), triple.startswith(_X86)
    is_wide = release >= limits.wide_integer_since
    of_target = (amdgpu_skew.check_code_object,) if triple.startswith(_AMD) else ()
    of_any_writer: dict[_Check, bool] = {
        **dict.fromkeys(of_target, True),
        _conflicting_bounds: is_nvidia,
        _openmp: True,
        _narrow_integers: is_x86 and is_wide,
    }
    of_newer: dict[_Check, bool] = {
        _summary: True,
        _types: True,
        _attributes: True,
        _launch_bounds: is_nvidia and release < limits.all_bounds_since,
        _parameters: is_nvidia and any(release < row.since for row in limits.parameters),
        _intrinsics: True,
        _conventions: any(release < row.since for row in limits.conventions.values()),
        _wide_integers: is_x86 and not is_wide,
        check_records: True,
    }
    return _Checks(
        *(tuple(one for one, can in each.items() if can) for each in (of_any_writer, of_newer))
    )
