"""Loop-invariant terms of narrow indices are added to the pointer before the variant ones."""

from __future__ import annotations

import pytest

from mlir_offload.translate.mlir.module import parse_module
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.narrow_address import split_addresses

NSW = "<{overflowFlags = 3 : i32}> : (i32, i32) -> i32"
MODULE = """
"builtin.module"() ({
  "llvm.func"() <{function_type = !llvm.func<void (ptr, i32, i32, i1)>, sym_name = "k"}> ({
  ^bb0(%base: !llvm.ptr, %column: i32, %stride: i32, %again: i1):
    "llvm.br"(%column)[^bb1] : (i32) -> ()
  ^bb1(%row: i32):
    %product = "llvm.mul"(%row, %stride) NSW
    %index = "llvm.add"(%product, %column) NSW
    %address = "llvm.getelementptr"(%base, %index) <{elem_type = f32, noWrapFlags = 7 : i32, rawConstantIndices = array<i32: -2147483648>}> : (!llvm.ptr, i32) -> !llvm.ptr
    %next = "llvm.load"(%address) <{ordering = 0 : i64}> : (!llvm.ptr) -> i32
    "llvm.cond_br"(%again, %next)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (i1, i32) -> ()
  ^bb2:
    "llvm.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
""".replace("NSW", NSW)
PRODUCT = f'%product = "llvm.mul"(%row, %stride) {NSW}'
# A loop nested in the other one.
INNER = """
    "llvm.br"()[^bb3] : () -> ()
  ^bb3:
    "llvm.cond_br"(%again)[^bb3, ^bb4] : (i1) -> ()
  ^bb4:
"""


def added(*changes: tuple[str, str]) -> list[str]:
    """Return what is added to the base one after the other, up to the address that is loaded from."""
    text = MODULE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (function,) = functions = parse_module(text).operations
    split_addresses(functions)
    made = {name: one for one in function.walk_inside() for name in one.result_names}
    (load,) = (one for one in made.values() if one.name == "llvm.load")
    address, terms = load.operand_names[0], list[str]()
    while address != "%base":
        address, term = made[address].operand_names
        terms.insert(0, term)
    assert flags_of(made) == ({"0 : i32"} if len(terms) > 1 else {"7 : i32"})
    return terms


def flags_of(made: dict[str, Operation]) -> set[str]:
    addresses = (one for one in made.values() if one.name == "llvm.getelementptr")
    return {one.attribute("noWrapFlags") for one in addresses}


def test_what_the_loop_leaves_alone_is_added_first() -> None:
    assert added() == ["%column", "%product"]


def test_terms_of_three_dimensions_are_added_one_by_one() -> None:
    plane = (
        f'%plane = "llvm.mul"(%column, %stride) {NSW}\n%sum = "llvm.add"(%product, %plane) {NSW}'
    )
    changes = ((PRODUCT, f"{PRODUCT}\n{plane}"), ("(%product, %column)", "(%sum, %column)"))
    assert added(*changes) == ["%plane", "%column", "%product"]


def test_a_step_of_an_unrolled_loop_is_added_before_its_index() -> None:
    assert added((PRODUCT, ""), ("(%product, %column)", "(%row, %column)")) == ["%column", "%row"]


@pytest.mark.parametrize(
    "changes",
    [
        [("(%product, %column) <{overflowFlags = 3", "(%product, %column) <{overflowFlags = 2")],
        [("0>}> : (i1", "0>, loop_annotation = #unroll}> : (i1")],
        [("!llvm.ptr", "!llvm.ptr<3>")],
        [("array<i32: -", "array<i32: 1, -")],
        [("(%row, %stride)", "(%column, %stride)"), ("(%product, %column)", "(%product, %row)")],
        [("(%product, %column)", "(%product, %row)")],
        [("%product =", f"{INNER}%product =")],
    ],
    ids=[
        "may overflow",
        "unrolled",
        "narrow pointer",
        "constant",
        "row outside",
        "all change",
        "not innermost",
    ],
)
def test_other_addresses_stay_as_they_are(changes: list[tuple[str, str]]) -> None:
    assert added(*changes) == ["%index"]
