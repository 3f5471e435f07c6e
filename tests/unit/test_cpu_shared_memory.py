"""Workgroup memory: sizes, offsets, and constant expressions that become instructions."""

from __future__ import annotations

import pytest

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.cpu.shared import (
    lay_out_shared,
    place_shared,
    size_of,
    without_address_spaces,
)
from mlir_offload.translate.cpu.text import parse_device_module

MODULE = """\
@small = internal addrspace(3) global [3 x i8] undef, align 1
@plain = internal constant [4 x i8] c"@a {\\00"
@large = internal addrspace(3) global [64 x float] undef, align 256
@rest = internal addrspace(3) global [0 x i8] undef, align 16
define void @k(i64 %0) {
BODY
  ret void
}
"""


@pytest.mark.parametrize(
    ("type_", "size", "alignment"),
    [
        ("i1", 1, 1),
        ("i24", 4, 4),
        ("half", 2, 2),
        ("double", 8, 8),
        ("ptr", 8, 8),
        ("i128", 16, 16),
        ("[3 x [5 x i16]]", 30, 2),
        ("<4 x float>", 16, 16),
        ("<3 x i32>", 16, 16),
        ("<8 x i1>", 1, 1),
        ("{ i8, i64, i8 }", 24, 8),
        ("<{ i8, i64, i8 }>", 10, 1),
        ("{ ptr, ptr, i64, [2 x i64], [2 x i64] }", 56, 8),
    ],
)
def test_sizes_follow_the_data_layout_of_x86_64(type_: str, size: int, alignment: int) -> None:
    assert size_of(type_) == (size, alignment)


def test_each_static_global_has_a_place_and_the_dynamic_memory_none() -> None:
    layout = lay_out_shared(parse_device_module(MODULE.replace("BODY", "")))
    assert layout.offsets == (("small", 0), ("large", 256))
    assert layout.size_bytes == 1024  # dynamic memory follows at a multiple of the swizzled pattern
    assert layout.dynamic == ("rest",)


def test_matrices_begin_at_multiples_of_the_swizzled_pattern() -> None:
    text = """@flag = private addrspace(3) global i64 undef, align 8
@tile = private addrspace(3) global [64 x [64 x half]] undef
"""
    assert lay_out_shared(parse_device_module(text)).offsets == (("flag", 0), ("tile", 1024))


def test_globals_without_an_alignment_have_that_of_their_type() -> None:
    text = """@flag = private addrspace(3) global i64 undef, align 8
@wide = private addrspace(3) global <64 x float> undef
"""
    assert lay_out_shared(parse_device_module(text)).offsets == (("flag", 0), ("wide", 256))


def test_an_alignment_beyond_that_of_workgroup_memory_is_refused() -> None:
    with pytest.raises(SourceError, match="'w' is aligned to 2048 bytes"):
        lay_out_shared(parse_device_module("@w = addrspace(3) global i64 undef, align 2048\n"))


def placed(*body: str) -> list[str]:
    module = parse_device_module(MODULE.replace("BODY", "\n".join(f"  {line}" for line in body)))
    done = place_shared(module.functions[0], lay_out_shared(module), "%c")
    return [line.strip() for line in done.body]


def test_global_becomes_an_address_from_the_context() -> None:
    lines = placed("store float 1.0, ptr addrspace(3) @large")
    assert lines == [
        "v1:",
        "%mo.e0 = call ptr @mo.static_shared(ptr %c)",
        "%mo.e1 = getelementptr inbounds i8, ptr %mo.e0, i64 256",
        "store float 1.0, ptr %mo.e1",
        "ret void",
    ]


def test_constant_expressions_are_undone_from_the_inside() -> None:
    lines = placed(
        "%2 = load i8, ptr getelementptr inbounds (i8, ptr addrspacecast "
        "(ptr addrspace(3) @rest to ptr), i64 12)"
    )
    assert lines[1:4] == [
        "%mo.e0 = call ptr @mo.dynamic_shared(ptr %c)",
        "%mo.e1 = getelementptr inbounds i8, ptr %mo.e0, i64 12",
        "%v2 = load i8, ptr %mo.e1",
    ]


def test_descriptor_constants_are_built_member_by_member() -> None:
    lines = placed(
        "%2 = insertvalue { ptr, ptr, [1 x i64] } { ptr addrspacecast (ptr addrspace(3) @rest to ptr), "
        "ptr addrspacecast (ptr addrspace(3) @rest to ptr), [1 x i64] [i64 7] }, i64 %0, 2, 0"
    )
    assert lines[2:6] == [
        "%mo.e1 = insertvalue { ptr, ptr, [1 x i64] } poison, ptr %mo.e0, 0",
        "%mo.e2 = insertvalue { ptr, ptr, [1 x i64] } %mo.e1, ptr %mo.e0, 1",
        "%mo.e3 = insertvalue { ptr, ptr, [1 x i64] } %mo.e2, [1 x i64] [i64 7], 2",
        "%v2 = insertvalue { ptr, ptr, [1 x i64] } %mo.e3, i64 %v0, 2, 0",
    ]


def test_difference_of_two_addresses_is_computed() -> None:
    lines = placed(
        "%2 = add i64 %0, sub (i64 ptrtoint (ptr addrspace(3) @rest to i64), "
        "i64 ptrtoint (ptr addrspace(3) @small to i64))"
    )
    assert lines[-2] == "%v2 = add i64 %v0, %mo.e5"
    assert lines[-3] == "%mo.e5 = sub i64 %mo.e4, %mo.e3"


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("%2 = addrspacecast ptr addrspace(3) %1 to ptr", "%2 = bitcast ptr %1 to ptr"),
        ("%2 = load i8, ptr addrspace(1) %1", "%2 = load i8, ptr %1"),
        (
            "call void @llvm.memcpy.p3.p0.i64(ptr addrspace(3) %1, ptr %2, i64 8, i1 false)",
            "call void @llvm.memcpy.p0.p0.i64(ptr %1, ptr %2, i64 8, i1 false)",
        ),
    ],
)
def test_every_pointer_is_in_one_address_space(line: str, plain: str) -> None:
    assert without_address_spaces(line) == plain


def test_descriptor_constants_of_a_phi_have_its_type() -> None:
    lines = placed(
        "%2 = phi { ptr addrspace(3), [1 x i64] } [ { ptr addrspace(3) @rest, [1 x i64] [i64 7] }, %1 ]"
    )
    assert lines[2:5] == [
        "%mo.e1 = insertvalue { ptr, [1 x i64] } poison, ptr %mo.e0, 0",
        "%mo.e2 = insertvalue { ptr, [1 x i64] } %mo.e1, [1 x i64] [i64 7], 1",
        "%v2 = phi { ptr, [1 x i64] } [ %mo.e2, %v1 ]",
    ]
