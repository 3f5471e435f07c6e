"""Types of the values that instructions define."""

from __future__ import annotations

import pytest

from mlir_offload.translate.cpu.result_type import result_type


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
