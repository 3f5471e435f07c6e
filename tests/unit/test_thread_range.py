"""The range of a thread ID is widened to that of any block if only addresses depend on the ID."""

from __future__ import annotations

import pytest

from mlir_offload.translate.mlir.module import parse_module
from mlir_offload.translate.thread_range import bound_blocks, widen_ranges

MODULE = """
"builtin.module"() ({
  "llvm.func"() <{function_type = !llvm.func<void (ptr, i64, i32)>, sym_name = "k"}> ({
  ^bb0(%base: !llvm.ptr, %n: i64, %block: i32):
    %constant = "llvm.mlir.constant"() <{value = 16 : i32}> : () -> i32
    %x = "rocdl.workitem.id.x"() <{range = #llvm.constant_range<i32, 0, 32>}> : () -> i32
    %y = "ID"() <{range = RANGE}> : () -> i32
    %row = "llvm.mul"(%y, %constant) <{overflowFlags = 0 : i32}> : (i32, i32) -> i32
    %wide = "llvm.sext"(%row) : (i32) -> i64
    %sum = "llvm.add"(%wide, %n) <{overflowFlags = 0 : i32}> : (i64, i64) -> i64
    %address = "llvm.getelementptr"(%base, %sum) <{elem_type = f32, noWrapFlags = 0 : i32, rawConstantIndices = array<i32: -2147483648>}> : (!llvm.ptr, i64) -> !llvm.ptr
    USE
    "llvm.return"() : () -> ()
  ^bb1(%start: i32):
    "llvm.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""
GIVEN, ANY = "#llvm.constant_range<i32, 0, 8>", "#llvm.constant_range<i32, 0, 1024>"
ID = "nvvm.read.ptx.sreg.tid.y"


def compared(operand: str, other: str, predicate: int, kind: str = "i32") -> str:
    return (
        f'%is = "llvm.icmp"({operand}, {other}) <{{predicate = {predicate} : i64}}> '
        f": ({kind}, {kind}) -> i1"
    )


def range_of(use: str = "", name: str = ID, given: str = GIVEN) -> str:
    """Return what the range of the ID is where there is another use of it."""
    text = MODULE.replace("USE", use).replace("RANGE", given).replace("ID", name)
    functions = parse_module(text).operations
    widen_ranges(functions)
    inside = functions[0].walk_inside()
    (found,) = (one for one in inside if one.result_text == "%y")
    return found.attribute("range")


@pytest.mark.parametrize(
    "use",
    [
        "",
        compared("%sum", "%n", 2, "i64"),
        compared("%y", "%block", 2),
        compared("%y", "%constant", 0),
        compared("%x", "%constant", 2),
    ],
    ids=["an address", "a sum", "a limit", "equality", "another ID"],
)
def test_an_id_that_decides_nothing_may_be_that_of_any_block(use: str) -> None:
    assert range_of(use) == ANY


@pytest.mark.parametrize(
    "use",
    [
        compared("%y", "%constant", 2),
        compared("%row", "%x", 6),
        compared("%wide", "%wide", 6, "i64"),
        '%part = "llvm.udiv"(%row, %constant) : (i32, i32) -> i32',
        '"llvm.br"(%y)[^bb1] : (i32) -> ()',
    ],
    ids=["a constant", "another ID", "wide", "a quotient", "the start of a loop"],
)
def test_an_id_that_may_decide_something_keeps_its_range(use: str) -> None:
    assert range_of(use) == GIVEN


@pytest.mark.parametrize(
    ("name", "given"),
    [
        (ID, "#llvm.constant_range<i32, 0, 1>"),
        (ID, "array<i32: 0, 8>"),
        ("nvvm.read.ptx.sreg.laneid", "#llvm.constant_range<i32, 0, 32>"),
    ],
    ids=["a constant", "LLVM 19", "no thread ID"],
)
def test_other_ranges_stay(name: str, given: str) -> None:
    assert range_of(name=name, given=given) == given


BLOCKS = """
"builtin.module"() ({
  "llvm.func"() <{function_type = !llvm.func<void ()>, sym_name = "k"}> ({
    %t = "rocdl.workitem.id.x"() THREAD : () -> i32
    %x = "rocdl.workgroup.id.x"() : () -> i32
    %y = "rocdl.workgroup.id.y"() GIVEN : () -> i32
    %z = "rocdl.workgroup.id.z"() : () -> i32
    "llvm.return"() : () -> ()
  }) {SIZE} : () -> ()
}) : () -> ()
"""
SIZE = "rocdl.reqd_work_group_size = array<i32: 32, 3, 1>"
THREAD = "<{range = #llvm.constant_range<i32, 0, 32>}>"


def blocks_of(thread: str = THREAD, given: str = "", size: str = SIZE) -> list[str]:
    """Return the ranges of the block IDs."""
    text = BLOCKS.replace("THREAD", thread).replace("GIVEN", given).replace("SIZE", size)
    functions = parse_module(text).operations
    bound_blocks(functions)
    inside = functions[0].walk_inside()
    return [one.attribute("range") for one in inside if one.name.startswith("rocdl.workgroup")]


def test_a_block_id_has_the_range_of_the_largest_grid() -> None:
    # 2**32 threads at most: 2**27 blocks of 32, and one more than a third of blocks of 3.
    limits = [134217728, 1431655766]
    assert blocks_of() == [*(f"#llvm.constant_range<i32, 0, {limit}>" for limit in limits), ""]


def test_a_block_of_two_threads_bounds_nothing_in_32_bits() -> None:
    assert blocks_of(size=SIZE.replace("32, 3, 1", "2, 1, 2")) == ["", "", ""]


def test_a_range_that_is_known_stays() -> None:
    given = "#llvm.constant_range<i32, 0, 7>"
    assert blocks_of(given=f"<{{range = {given}}}>")[1] == given


@pytest.mark.parametrize(
    ("thread", "size"),
    [(THREAD, "other"), ("{range = array<i32: 0, 32>}", SIZE), ("", SIZE)],
    ids=["no known size", "LLVM 19", "no range"],
)
def test_other_block_ids_have_no_range(thread: str, size: str) -> None:
    assert blocks_of(thread, size=size) == ["", "", ""]
