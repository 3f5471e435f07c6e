"""The code around a kernel: its launch function, and the loops over the work-items of a block."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mlir_offload.translate.cpu_region import RegionKernel
from mlir_offload.translate.cpu_text import Function, first_type, symbol

KERNEL_TYPE = "%mo.kernel = type { ptr, ptr, i64, i64, i32 }"
_AXES = "xyz"


class KernelMode(Enum):
    """How the work-items of a block are run."""

    LOOPS = "loops"
    REGIONS = "regions"
    FIBERS = "fibers"


@dataclass(frozen=True, slots=True)
class Metadata:
    """References that generated code carries: `, !dbg !7` and the like, or nothing."""

    subprogram: str = ""
    location: str = ""
    access_group: str = ""
    loop: str = ""


def item_name(kernel: str) -> str:
    """Return the name of the function that one work-item runs."""
    return f"{kernel}.item"


def run_name(kernel: str) -> str:
    """Return the name of the function behind mo_kernel.run."""
    return f"{kernel}.run"


def launch_definition(kernel: str, mode: KernelMode, *, shared_bytes: int, state_bytes: int) -> str:
    """Return the exported function and the constant that describes the kernel to the runtime."""
    described, name = symbol(f"{kernel}.kernel"), symbol(f"{kernel}.name")
    text = kernel.encode()
    spelled = "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\{byte:02X}" for byte in text)
    fibers = int(mode is KernelMode.FIBERS)
    return "\n".join((
        f'{name} = internal constant [{len(text) + 1} x i8] c"{spelled}\\00"',
        f"{described} = internal constant %mo.kernel {{ ptr {name}, ptr {symbol(run_name(kernel))}, "
        f"i64 {shared_bytes}, i64 {state_bytes}, i32 {fibers} }}, align 8",
        f"define void {symbol(kernel)}(ptr %launch, ptr %params) nounwind {{",
        f"  call void @mo_cpu_launch(ptr %launch, ptr %params, ptr {described})",
        "  ret void",
        "}",
    ))


def fiber_definition(kernel: str, item: Function, metadata: Metadata) -> str:
    """Return mo_kernel.run for a kernel whose work-items are fibers: one work-item."""
    loads, arguments = _arguments(item.parameters[1:])
    call = f"  call void {symbol(item.name)}({', '.join(('ptr %item', *arguments))}){metadata.location}"
    head = f"define internal void {symbol(run_name(kernel))}(ptr %item, ptr %params) nounwind"
    return "\n".join((f"{head}{metadata.subprogram} {{", *loads, call, "  ret void", "}"))


def loop_definition(kernel: str, item: Function, metadata: Metadata) -> str:
    """Return mo_kernel.run that runs a block: loops over z, y and x, x innermost."""
    loads, arguments = _arguments(item.parameters[1:])
    listed = ", ".join(("ptr %item", *arguments))
    marks = f"{metadata.access_group}{metadata.location}"
    call = (f"  call void {symbol(item.name)}({listed}){marks}",)
    head = f"define internal void {symbol(run_name(kernel))}(ptr %block, ptr %params) nounwind"
    return "\n".join((
        f"{head}{metadata.subprogram} {{",
        "entry:",
        *copy_block(),
        *loads,
        "  br label %l.begin",
        *item_loops("l", call, then="done", metadata=metadata),
        "done:",
        "  ret void",
        "}",
    ))


def region_definition(kernel: str, region: RegionKernel, metadata: Metadata) -> str:
    """Return mo_kernel.run for a kernel split at barriers: loops for each entrance."""
    own = region.function.parameters[2 : len(region.function.parameters) - len(region.uniform)]
    loads, arguments = _arguments(own)
    head = f"define internal void {symbol(run_name(kernel))}(ptr %block, ptr %params) nounwind"
    lines = [f"{head}{metadata.subprogram} {{", "entry:", *copy_block(), *loads, "  br label %s0.begin"]
    for entrance in region.entrances:
        p = f"s{entrance.number}"
        live = frozenset(slot.value for slot in entrance.live)
        uniform = [(slot, slot.value in live) for slot in region.uniform]
        values = tuple(
            f"{slot.type} {f'%{p}.u{slot.offset}' if is_live else 'poison'}" for slot, is_live in uniform
        )
        before = tuple(
            line for slot, is_live in uniform if is_live for line in (
                f"  %{p}.at{slot.offset} = getelementptr inbounds i8, ptr %state, i64 {slot.offset}",
                f"  %{p}.u{slot.offset} = load {slot.type}, ptr %{p}.at{slot.offset}",
            )
        )
        operands = ", ".join(("ptr %item", f"i32 {entrance.number}", *arguments, *values))
        call = f"  call void {symbol(region.function.name)}({operands}){metadata.access_group}{metadata.location}"
        lines += item_loops(p, (call,), then=f"{p}.next", metadata=metadata, before=before)
        lines += _next_region(p, entrance.exits, region.next_offset)
    return "\n".join((*lines, "done:", "  ret void", "}"))


def _next_region(prefix: str, exits: tuple[int, ...], next_offset: int) -> tuple[str, ...]:
    labels = {number: f"%s{number}.begin" if number else "%done" for number in exits}
    if len(exits) == 1:
        return (f"{prefix}.next:", f"  br label {labels[exits[0]]}")
    first, *others = exits
    cases = " ".join(f"i32 {number}, label {labels[number]}" for number in others)
    return (
        f"{prefix}.next:",
        f"  %{prefix}.next.at = getelementptr inbounds i8, ptr %state, i64 {next_offset}",
        # All work-items go to the same barrier, so that the first one speaks for all.
        f"  %{prefix}.to = load i32, ptr %{prefix}.next.at, align 4",
        f"  switch i32 %{prefix}.to, label {labels[first]} [{cases}]",
    )


def _arguments(parameters: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the loads from `params` and the operands of the call."""
    loads: list[str] = []
    operands: list[str] = []
    for index, parameter in enumerate(parameters):
        type_ = first_type(parameter)
        loads.append(f"  %p{index}.slot = getelementptr inbounds ptr, ptr %params, i64 {index}")
        loads.append(f"  %p{index}.at = load ptr, ptr %p{index}.slot, align 8")
        if "byval(" in parameter:
            operands.append(f"{parameter.rsplit(' ', 1)[0]} %p{index}.at")
            continue
        loads.append(f"  %p{index} = load {type_}, ptr %p{index}.at")
        operands.append(f"{type_} %p{index}")
    return tuple(loads), tuple(operands)


def copy_block() -> tuple[str, ...]:
    """Return the allocation of the work-item's context, filled with what the block shares."""
    lines = ["  %item = alloca %mo.item, align 8"]
    for field, name in ((2, "block_dim"), (3, "block_id"), (4, "grid_dim")):
        for axis in range(3):
            # Sizes of 1 to 1024 let 32-bit ids be widened without a check for overflow.
            bounds = ", !range !{i32 1, i32 1025}" if field == 2 else ""
            lines += _copy(f"{name}.{_AXES[axis]}", "i32", f"i32 {field}, i32 {axis}", bounds)
    for field, name in ((5, "static"), (6, "dynamic"), (7, "state"), (8, "group")):
        lines += _copy(name, "ptr", f"i32 {field}", "")
    return tuple(lines)


def _copy(name: str, type_: str, place: str, suffix: str) -> list[str]:
    return [
        f"  %{name}.from = getelementptr inbounds %mo.item, ptr %block, i32 0, {place}",
        f"  %{name} = load {type_}, ptr %{name}.from, align {4 if type_ == 'i32' else 8}{suffix}",
    ]


def item_loops(
    prefix: str, call: tuple[str, ...], *, then: str, metadata: Metadata, before: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return loops over the work-items that fill `%item` and do `call`; enter at `PREFIX.begin`.

    The context is filled in the innermost loop so that SROA dissolves it there.
    """
    p = prefix
    return (
        f"{p}.begin:",
        *before,
        f"  br label %{p}.z.head",
        f"{p}.z.head:",
        f"  %{p}.z = phi i32 [ 0, %{p}.begin ], [ %{p}.z.next, %{p}.z.latch ]",
        f"  %{p}.zrow = mul nuw nsw i32 %{p}.z, %block_dim.y",
        f"  br label %{p}.y.head",
        f"{p}.y.head:",
        f"  %{p}.y = phi i32 [ 0, %{p}.z.head ], [ %{p}.y.next, %{p}.y.latch ]",
        f"  %{p}.row = add nuw nsw i32 %{p}.zrow, %{p}.y",
        f"  %{p}.first = mul nuw nsw i32 %{p}.row, %block_dim.x",
        f"  br label %{p}.x.body",
        f"{p}.x.body:",
        f"  %{p}.x = phi i32 [ 0, %{p}.y.head ], [ %{p}.x.next, %{p}.x.latch ]",
        f"  %{p}.linear = add nuw nsw i32 %{p}.first, %{p}.x",
        *_fill(p),
        *call,
        f"  br label %{p}.x.latch",
        f"{p}.x.latch:",
        f"  %{p}.x.next = add nuw nsw i32 %{p}.x, 1",
        f"  %{p}.x.more = icmp ult i32 %{p}.x.next, %block_dim.x",
        f"  br i1 %{p}.x.more, label %{p}.x.body, label %{p}.y.latch{metadata.loop}",
        f"{p}.y.latch:",
        f"  %{p}.y.next = add nuw nsw i32 %{p}.y, 1",
        f"  %{p}.y.more = icmp ult i32 %{p}.y.next, %block_dim.y",
        f"  br i1 %{p}.y.more, label %{p}.y.head, label %{p}.z.latch",
        f"{p}.z.latch:",
        f"  %{p}.z.next = add nuw nsw i32 %{p}.z, 1",
        f"  %{p}.z.more = icmp ult i32 %{p}.z.next, %block_dim.z",
        f"  br i1 %{p}.z.more, label %{p}.z.head, label %{then}",
    )


def _fill(prefix: str) -> tuple[str, ...]:
    lines: list[str] = []

    def store(place: str, type_: str, value: str) -> None:
        slot = f"%{prefix}.slot{len(lines) // 2}"
        lines.append(f"  {slot} = getelementptr inbounds %mo.item, ptr %item, i32 0, {place}")
        lines.append(f"  store {type_} {value}, ptr {slot}, align {4 if type_ == 'i32' else 8}")

    for axis in range(3):
        store(f"i32 0, i32 {axis}", "i32", f"%{prefix}.{_AXES[axis]}")
    store("i32 1", "i32", f"%{prefix}.linear")
    for field, name in ((2, "block_dim"), (3, "block_id"), (4, "grid_dim")):
        for axis in range(3):
            store(f"i32 {field}, i32 {axis}", "i32", f"%{name}.{_AXES[axis]}")
    for field, name in ((5, "static"), (6, "dynamic"), (7, "state"), (8, "group")):
        store(f"i32 {field}", "ptr", f"%{name}")
    return tuple(lines)
