"""LLVM IR with sanitizer attributes."""

from __future__ import annotations

import pytest

from mlir_offload.translate.sanitizer import (
    Sanitizer,
    instrumented,
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
