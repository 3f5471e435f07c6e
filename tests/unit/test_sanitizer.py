"""LLVM IR that is marked for a sanitizer."""

from __future__ import annotations

import pytest

from mlir_offload.translate.sanitizer import (
    Sanitizer,
    instrumented,
    lowered_reductions,
    without_races_at,
)


@pytest.mark.parametrize(
    ("head", "marked"),
    [
        ("define void @f() {", "define void @f() sanitize_address {"),
        (
            "define ptr @g(ptr %0, { i64, i1 } %1) #0 !dbg !3 {",
            "define ptr @g(ptr %0, { i64, i1 } %1) sanitize_address #0 !dbg !3 {",
        ),
        (
            'define i32 @"a (b"(ptr align 4 %0, i8 range(i8 0, 2) %1) unnamed_addr {',
            'define i32 @"a (b"(ptr align 4 %0, i8 range(i8 0, 2) %1) unnamed_addr sanitize_address {',
        ),
        ("declare void @f()", "declare void @f()"),
    ],
)
def test_every_function_that_is_defined_is_marked_after_its_parameters(
    head: str, marked: str
) -> None:
    assert instrumented(f"{head}\n  ret void\n}}\n", Sanitizer.ADDRESS).startswith(f"{marked}\n")


def test_the_places_of_reductions_over_a_block_are_those_of_the_operations() -> None:
    module = """\
#loc1 = loc("a.mlir":3:5)
#loc2 = loc("a.mlir":7:9)
#loc3 = loc(fused[#loc1, "b.mlir":8:1])
  %1 = "gpu.all_reduce"(%0) <{op = #gpu<all_reduce_op add>}> ({
  }) : (f32) -> f32 loc(#loc2)
  %3 = "gpu.all_reduce"(%2) ({
  ^bb0(%4: f32, %5: f32):
    "gpu.yield"(%4) : (f32) -> () loc(#loc1)
  }) : (f32) -> f32 loc(#loc3)
  "gpu.barrier"() : () -> () loc(#loc1)
"""
    assert lowered_reductions(module) == ("7:9", "8:1", "3:5")


def test_only_stores_at_these_places_are_left_alone() -> None:
    text = """\
  store float %1, ptr %2, align 4, !dbg !4
  store float %1, ptr %2, align 4, !dbg !5
  %3 = load float, ptr %2, align 4, !dbg !4
!4 = !DILocation(line: 7, column: 9, scope: !1)
!5 = !DILocation(line: 7, column: 1, scope: !1)
"""
    changed = without_races_at(text, ("7:9",)).splitlines()
    assert changed[0].endswith("!dbg !4, !nosanitize !{}")
    assert changed[1:] == text.splitlines()[1:]
