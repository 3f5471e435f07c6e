"""The block function of a kernel without barriers: loops over the threads."""

from __future__ import annotations

from msgspec.structs import replace

from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.translate.cpu.launch import (
    Metadata,
    copy_block,
    fill_thread_context,
    load_arguments,
    run_head,
    run_name,
)
from mlir_offload.translate.cpu.text import Function, label_of, symbol

_AXES = "zyx"
_FAILURE = ir_pattern("call void @mo_cpu_assertfail(")
_JUMP = ir_line("  br label `label:local``some?``end`")


def with_noted_failures(item: Function) -> Function | None:
    """Return the function with assertions that record the failure and return; None if only fibers can run it.

    The call of a failed assertion must be followed by a branch or `unreachable`, and no phi may have its basic
    block as a predecessor.
    """
    body = list(item.body)
    label = ""
    for number, line in enumerate(body):
        label = label_of(line) or label
        if _FAILURE.search(line) is None:
            continue
        goes_on = _JUMP.match(body[number + 1]) is not None or "unreachable" in body[number + 1]
        if not goes_on or any(f", %{label} ]" in other for other in body):
            return None
        body[number] = line.replace("@mo_cpu_assertfail(", "@mo_cpu_note_failure(", 1)
        body[number + 1] = "  ret void"
    return replace(item, body=tuple(body))


def loops_definition(kernel: str, item: Function, metadata: Metadata) -> str:
    """Return the block function (`mo_kernel.run`): loops over z, y and x, x innermost, around the thread function."""
    loads, operands = load_arguments(item.parameters[1:])
    call = f"call void {symbol(item.name)}({', '.join(('ptr %item', *operands))})"
    return "\n".join(
        (
            run_head(run_name(kernel), "%block", metadata),
            "entry:",
            *copy_block(),
            *loads,
            # One `nop` for each source line, for breakpoints. The compiler emits a vector loop and a remainder
            # loop; a debugger stops in the first one only, which may not run.
            *(f'  call void asm sideeffect "nop", ""(){line}' for line in metadata.lines),
            "  br label %z.head",
            *(
                line
                for outer, axis in zip(("entry", "z", "y"), _AXES, strict=True)
                for line in _head(axis, outer)
            ),
            "  %zrow = mul nuw nsw i32 %z, %block_dim.y",
            "  %row = add nuw nsw i32 %zrow, %y",
            "  %first = mul nuw nsw i32 %row, %block_dim.x",
            "  %linear = add nuw nsw i32 %first, %x",
            *fill_thread_context(),
            f"  {call}{metadata.access_group}{metadata.location}",
            *(line for axis in reversed(_AXES) for line in _latch(axis, metadata)),
            "  ret void",
            "}",
        )
    )


def _head(axis: str, outer: str) -> tuple[str, ...]:
    before = outer if outer == "entry" else f"{outer}.head"
    begin = () if outer == "entry" else (f"  br label %{axis}.head",)
    next_ = f"%{axis}.next, %{axis}.latch" if axis != "x" else "%x.next, %x.head"
    return (*begin, f"{axis}.head:", f"  %{axis} = phi i32 [ 0, %{before} ], [ {next_} ]")


def _latch(axis: str, metadata: Metadata) -> tuple[str, ...]:
    outer = {"x": "y.latch", "y": "z.latch", "z": "done"}[axis]
    return (
        f"  %{axis}.next = add nuw nsw i32 %{axis}, 1",
        f"  %{axis}.more = icmp ult i32 %{axis}.next, %block_dim.{axis}",
        f"  br i1 %{axis}.more, label %{axis}.head, label %{outer}{metadata.loop if axis == 'x' else ''}",
        f"{outer}:",
    )
