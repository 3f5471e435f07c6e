"""The code of a CPU kernel grows linearly with its barriers, not quadratically."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mlir_offload.translate.cpu.bound import with_bounded_regions
from mlir_offload.translate.cpu.kernel import BARRIER, BarrierSplitKernel
from mlir_offload.translate.cpu.parameter import share_parameters
from mlir_offload.translate.cpu.region import split_at_barriers
from mlir_offload.translate.cpu.text import Function
from mlir_offload.translate.cpu.values import Block, parse_blocks

HEAD = "define void @k(ptr %c, ptr %m, i64 %n)"
BARRIER_CALL = "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"
READ = "  %t = call i32 @mo.read.ptx.sreg.tid.x(ptr %c)"


def _crossing(barriers: int) -> str:
    """Return a kernel of which each value is loaded before a barrier and used behind all of them."""
    loads = [
        line
        for k in range(barriers)
        for line in (
            f"  %x{k} = load volatile i32, ptr %m",
            BARRIER_CALL,
        )
    ]
    sums = [f"  %s{k + 1} = add i32 %s{k}, %x{k}" for k in range(barriers)]
    body = [READ, *loads, "  %s0 = add i32 %t, 0", *sums, f"  store i32 %s{barriers}, ptr %m"]
    return "\n".join((f"{HEAD} {{", "e:", *body, "  ret void", "}", ""))


def _loops(barriers: int) -> str:
    """Return a kernel of loops one behind the other, with a barrier in each."""
    lines = [f"{HEAD} {{", "e:", "  br label %h0"]
    for k in range(barriers):
        before = "e" if k == 0 else f"h{k - 1}"
        lines += [
            f"h{k}:",
            f"  %i{k} = phi i64 [ 0, %{before} ], [ %j{k}, %b{k} ]",
            f"  %c{k} = icmp slt i64 %i{k}, %n",
            f"  br i1 %c{k}, label %b{k}, label %h{k + 1}",
            f"b{k}:",
            BARRIER_CALL,
            f"  %j{k} = add i64 %i{k}, 1",
            f"  br label %h{k}",
        ]
    return "\n".join((*lines, f"h{barriers}:", "  ret void", "}", ""))


def _split(text: str) -> BarrierSplitKernel:
    lines = text.replace(BARRIER_CALL, "  call void @mo.barrier(ptr %c)").splitlines()
    made = split_at_barriers(Function("k", HEAD, tuple(lines[1:-1])))
    assert made is not None
    return made


@pytest.mark.parametrize("program", [_crossing, _loops])
def test_a_split_kernel_grows_with_its_barriers(program: Callable[[int], str]) -> None:
    small, large = (_split(program(barriers)) for barriers in (40, 160))
    sizes = [sum(map(len, kernel.function.body)) for kernel in (small, large)]
    assert sizes[1] < sizes[0] * 4**1.15
    # Each call passes all parameters.
    assert len(large.function.parameters) <= len(small.function.parameters)
    exits = [len(entrance.exits) for entrance in large.entrances]
    assert max(exits) <= 20


def _blocks(count: int, *, ends_early: bool = False) -> list[Block]:
    text = _loops(count).splitlines()
    if ends_early:
        text[2:3] = ["  br i1 %m, label %h0, label %out", "out:", "  ret void"]
    lines = tuple(line.replace(BARRIER_CALL, "  call void @mo.barrier(ptr %c)") for line in text)
    return parse_blocks(Function("k", HEAD, lines[1:-1]))


def _barriers(blocks: list[Block]) -> int:
    return sum(BARRIER.search(line) is not None for block in blocks for line in block.lines)


def test_barriers_are_added_where_all_work_items_come_by_once() -> None:
    assert _barriers(with_bounded_regions(_blocks(16))) == 16
    assert _barriers(with_bounded_regions(_blocks(40))) == 45
    blocks = with_bounded_regions(_blocks(40))
    (added,) = [b for b in blocks if b.label.startswith("mo.cut") and "label %h8" in b.lines[-1]]
    (header,) = [block for block in blocks if block.label == "h8"]
    assert f"%{added.label} ]" in header.lines[0]


def test_no_barrier_is_added_where_some_work_items_may_have_ended() -> None:
    assert _barriers(with_bounded_regions(_blocks(40, ends_early=True))) == 40


def test_parameters_are_shared_by_values_that_are_not_needed_together() -> None:
    types = {"a": "i32", "b": "i32", "c": "i64", "d": "i32"}
    shared = share_parameters(types, [("a", "c"), ("b", "c"), ("b", "d")])
    assert shared.types == ("i32", "i64", "i32")
    assert shared.number_of == {"a": 0, "b": 0, "c": 1, "d": 2}
    assert shared.values(["b", "d", "unknown"]) == {0: "b", 2: "d"}
