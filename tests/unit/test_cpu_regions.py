"""Kernels split at barriers: values live across them, entry points, and split x-loops."""

from __future__ import annotations

import pytest

from mlir_offload.translate.cpu.kernel import BarrierSplitKernel
from mlir_offload.translate.cpu.region import split_at_barriers
from mlir_offload.translate.cpu.text import Function, parse_device_module
from mlir_offload.translate.cpu.uniform import find_uniform, is_pure
from mlir_offload.translate.cpu.values import parse_blocks, result_type
from mlir_offload.translate.cpu.variant import Choice, Cut, Leaf

TID = "call i32 @mo.read.ptx.sreg.tid.x(ptr %mo.c)"
BARRIER = "call void @mo.barrier(ptr %mo.c)"
LOOP = f"""\
entry:
  %id = {TID}
  %x = sext i32 %id to i64
  %at = getelementptr float, ptr %a, i64 %x
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k1, %body ]
  %sum = phi float [ 0.0, %entry ], [ %sum1, %body ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %body, label %exit
body:
  {BARRIER}
  %v = load float, ptr %at, align 4
  %sum1 = fadd float %sum, %v
  %k1 = add i64 %k, 1
  br label %head
exit:
  store float %sum, ptr %at, align 4
  ret void"""


def function(body: str) -> Function:
    head = "define internal void @k.item(ptr %mo.c, ptr %a, i64 %n, i64 %m) {"
    return parse_device_module(f"{head}\n{body}\n}}\n").functions[0]


def split(body: str) -> BarrierSplitKernel:
    kernel = split_at_barriers(function(body))
    assert kernel is not None
    return kernel


def test_kernel_without_barriers_is_entered_once() -> None:
    kernel = split(f"entry:\n  %id = {TID}\n  ret void")
    assert [(e.number, e.exits) for e in kernel.entrances] == [(0, (0,))]
    assert kernel.uniform == ()


def test_loop_around_a_barrier_is_entered_again_behind_it() -> None:
    kernel = split(LOOP)
    assert [(e.number, e.exits) for e in kernel.entrances] == [(0, (0, 1)), (1, (0, 1))]


def test_only_what_cannot_be_computed_again_is_kept() -> None:
    kernel = split(LOOP)
    live = {slot.value: slot.is_uniform for slot in kernel.entrances[1].live}
    assert live == {"%k": True, "%sum": False}


def test_counter_of_a_loop_that_all_share_needs_no_memory() -> None:
    assert split(LOOP).in_memory == frozenset()


def test_condition_of_the_block_is_decided_before_the_rows() -> None:
    variant = split(LOOP).entrances[1].variant
    assert isinstance(variant, Choice)
    assert not variant.is_of_row
    assert isinstance(variant.then, Leaf)
    assert (variant.then.region.exits, variant.other.region.exits) == ((1,), (0,))


@pytest.mark.parametrize(
    ("condition", "predicate", "is_signed", "is_negated"),
    [
        ("icmp ult i64 %x, %n", "ult", False, False),
        ("icmp sge i64 %x, %n", "ult", True, True),
        ("icmp ugt i64 %n, %x", "ult", False, False),
        ("icmp ne i64 %x, 0", "eq", False, True),
    ],
)
def test_row_is_cut_at_a_comparison_with_x(
    condition: str, predicate: str, *, is_signed: bool, is_negated: bool
) -> None:
    kernel = split(
        f"entry:\n  %id = {TID}\n  %x = sext i32 %id to i64\n  %c = {condition}\n"
        "  br i1 %c, label %yes, label %no\nyes:\n  store i64 %x, ptr %a\n  br label %no\n"
        "no:\n  ret void"
    )
    cut = kernel.entrances[0].variant
    assert isinstance(cut, Cut)
    assert (cut.comparison.predicate, cut.is_signed, cut.is_negated) == (
        predicate,
        is_signed,
        is_negated,
    )
    assert cut.comparison.first == "%x"


def test_row_is_not_cut_where_x_counts_backwards() -> None:
    kernel = split(
        f"entry:\n  %id = {TID}\n  %x = sext i32 %id to i64\n  %y = sub i64 %n, %x\n"
        "  %c = icmp ult i64 %y, %m\n  br i1 %c, label %yes, label %no\n"
        "yes:\n  store i64 %x, ptr %a\n  br label %no\nno:\n  ret void"
    )
    assert isinstance(kernel.entrances[0].variant, Leaf)


def test_work_items_that_end_before_a_barrier_need_fibers() -> None:
    body = (
        f"entry:\n  %id = {TID}\n  %x = sext i32 %id to i64\n  %c = icmp ult i64 %x, %n\n"
        f"  br i1 %c, label %wait, label %out\nwait:\n  {BARRIER}\n  br label %out\nout:\n  ret void"
    )
    assert split_at_barriers(function(body)) is None


def test_private_array_in_a_loop_with_barriers_needs_fibers() -> None:
    body = LOOP.replace(f"  {BARRIER}", f"  %own = alloca i32, i64 4\n  {BARRIER}")
    assert split_at_barriers(function(body)) is None


def test_private_array_has_a_place_for_each_work_item() -> None:
    body = LOOP.replace("entry:\n", "entry:\n  %own = alloca i32, i64 5, align 4\n")
    kernel = split(body.replace("  %v = ", "  store i32 1, ptr %own\n  %v = "))
    text = kernel.function.render()
    assert "%mo.offset0 = mul nuw nsw i64 %mo.index, 32" in text
    assert "alloca i32, i64" not in text
    assert kernel.state_bytes > 32 * 1024


def test_value_in_a_loop_that_some_leave_early_is_not_shared() -> None:
    body = (
        f"entry:\n  %id = {TID}\n  br label %loop\nloop:\n"
        "  %i = phi i32 [ 0, %entry ], [ %j, %loop ]\n  %j = add i32 %i, 1\n"
        "  %c = icmp ult i32 %j, %id\n  br i1 %c, label %loop, label %out\nout:\n"
        "  %same = add i64 %n, 1\n  ret void"
    )
    uniform = find_uniform(parse_blocks(function(body)), frozenset({"%a", "%n", "%m"}))
    assert "%same" in uniform
    assert not uniform & {"%id", "%i", "%j", "%c"}


@pytest.mark.parametrize(
    ("line", "pure"),
    [
        ("%r = add i64 %a, %b", True),
        ("%r = udiv i64 %a, 2", True),
        ("%r = udiv i64 %a, %b", False),
        ("%r = sdiv i64 %a, 0", False),
        ("%r = load i64, ptr %a", False),
        (f"%r = {TID}", True),
        ("%r = call i64 @llvm.umin.i64(i64 %a, i64 %b)", True),
        ("%r = call float @expf(float %a)", False),
        ("%r = phi i64 [ 0, %x ]", False),
    ],
)
def test_only_what_cannot_trap_may_run_anywhere(line: str, *, pure: bool) -> None:
    assert is_pure(line) is pure


@pytest.mark.parametrize(
    ("line", "type_"),
    [
        ("%r = add nuw nsw i64 %a, %b", "i64"),
        ("%r = icmp ult <4 x i32> %a, %b", "<4 x i1>"),
        ("%r = fcmp fast oeq float %a, %b", "i1"),
        ("%r = trunc nuw i64 %a to i32", "i32"),
        ("%r = getelementptr inbounds nuw float, ptr %a, i64 1", "ptr"),
        ("%r = select i1 %a, { i32, i1 } %b, { i32, i1 } %c", "{ i32, i1 }"),
        ("%r = extractvalue { ptr, [2 x i64] } %a, 1, 0", "i64"),
        ("%r = insertvalue { ptr, i64 } %a, i64 1, 1", "{ ptr, i64 }"),
        ("%r = extractelement <4 x float> %a, i32 0", "float"),
        (
            "%r = shufflevector <4 x float> %a, <4 x float> %b, <2 x i32> zeroinitializer",
            "<2 x float>",
        ),
        ("%r = atomicrmw volatile fadd ptr %a, float %b seq_cst, align 4", "float"),
        ("%r = cmpxchg weak ptr %a, i32 %b, i32 %c acq_rel monotonic", "{ i32, i1 }"),
        ("%r = tail call noundef range(i32 0, 4) i32 @f(i32 %a)", "i32"),
        ("%r = call i32 (ptr, ...) @printf(ptr %a)", "i32"),
        ("%r = load volatile <2 x i64>, ptr %a", "<2 x i64>"),
        ("%r = phi { ptr, i64 } [ %a, %b ]", "{ ptr, i64 }"),
        ("%r = fneg nnan float %a", "float"),
    ],
)
def test_types_of_results_are_read_from_the_text(line: str, type_: str) -> None:
    assert result_type(line) == type_
