"""Loops that make several steps at a time step one pointer for each array, and load from the same addresses."""

from __future__ import annotations

import pytest

from mlir_offload.translate.mlir.module import parse_module
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.stepped_address import step_addresses

ADD = "<{overflowFlags = 1 : i32}> : (i64, i64) -> i64"
GEP = (
    "<{elem_type = f32, noWrapFlags = 7 : i32, rawConstantIndices = array<i32: -2147483648>}>"
    " : (!llvm.ptr, i64) -> !llvm.ptr"
)
LOAD = "<{ordering = 0 : i64}> : (!llvm.ptr) -> f32"
MODULE = f"""
"builtin.module"() ({{
  "llvm.func"() <{{function_type = !llvm.func<void (ptr, ptr, i64, i64, i64, i64)>, sym_name = "k"}}> ({{
  ^bb0(%x: !llvm.ptr, %y: !llvm.ptr, %first: i64, %end: i64, %step: i64, %row: i64):
    %two = "llvm.mlir.constant"() <{{value = 2 : i64}}> : () -> i64
    %stride = "llvm.mul"(%step, %two) {ADD}
    "llvm.br"(%first)[^bb1] : (i64) -> ()
  ^bb1(%i: i64 loc("k.mlir":1:1)):  // 2 preds: ^bb0, ^bb2
    %more = "llvm.icmp"(%i, %end) <{{predicate = 2 : i64}}> : (i64, i64) -> i1
    "llvm.cond_br"(%more)[^bb2, ^bb3] <{{operandSegmentSizes = array<i32: 1, 0, 0>}}> : (i1) -> ()
  ^bb2:
    %x0 = "llvm.getelementptr"(%x, %i) {GEP}
    %l0 = "llvm.load"(%x0) {LOAD}
    %j = "llvm.add"(%i, %step) {ADD}
    %x1 = "llvm.getelementptr"(%x, %j) {GEP}
    %l1 = "llvm.load"(%x1) {LOAD}
    %a = "llvm.add"(%row, %i) {ADD}
    %y0 = "llvm.getelementptr"(%y, %a) {GEP}
    %l2 = "llvm.load"(%y0) {LOAD}
    %b = "llvm.add"(%row, %j) {ADD}
    %y1 = "llvm.getelementptr"(%y, %b) {GEP}
    %l3 = "llvm.load"(%y1) {LOAD}
    %next = "llvm.add"(%i, %stride) {ADD}
    "llvm.br"(%next)[^bb1] : (i64) -> ()
  ^bb3:
    "llvm.return"() : () -> ()
  }}) : () -> ()
}}) : () -> ()
"""
BYTES = 4


def changed(*changes: tuple[str, str], is_stepped: bool = True) -> Operation:
    text = MODULE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    module = parse_module(text)
    if is_stepped:
        step_addresses(module.operations)
    (function,) = parse_module(module.render()).operations
    return function


def loaded(function: Operation, *arguments: int) -> list[int]:
    """Return the addresses that a function loads from."""
    blocks = {
        block.label.partition("(")[0].partition(":")[0]: block
        for block in function.regions[0].blocks
    }
    values: dict[str, int] = {}
    found: list[int] = []
    label, given = "^bb0", list(arguments)
    while True:
        values |= zip((one.name for one in blocks[label].arguments), given, strict=True)
        for operation in blocks[label].operations:
            name = operation.name.removeprefix("llvm.")
            taken = [values[one] for one in operation.operand_names]
            if name == "load":
                found.append(taken[0])
            elif name == "return":
                return found
            elif name == "br":
                label, given = operation.signature.successors[0], taken
            elif name == "cond_br":
                label, given = operation.signature.successors[not taken[0]], []
            else:
                values[operation.result_text] = computed(operation, name, taken)


def computed(operation: Operation, name: str, taken: list[int]) -> int:
    if name == "mlir.constant":
        return operation.attribute("value").integer or 0
    left, right = taken
    results = {
        "add": left + right,
        "mul": left * right,
        "sub": left - right,
        "icmp": left < right,
        "getelementptr": left + BYTES * right,
    }
    return int(results[name])


def pointers(function: Operation) -> list[str]:
    """Return the pointers that the loop steps."""
    (head,) = (block for block in function.regions[0].blocks if block.label.startswith("^bb1"))
    return [one.type for one in head.arguments if one.type.startswith("!llvm.ptr")]


STRIDE = '"llvm.add"(%i, %stride)'
BRANCH = '"llvm.br"(%first)[^bb1] : (i64) -> ()'


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ([], 2),
        ([(STRIDE, '"llvm.add"(%stride, %i)')], 2),
        ([('"llvm.add"(%row, %i)', '"llvm.add"(%two, %i)')], 2),
        (
            [
                ('"llvm.add"(%row, %j)', '"llvm.add"(%row, %x2)'),
                ("%a =", f'%x2 = "llvm.add"(%j, %step) {ADD}\n%a ='),
            ],
            2,
        ),
        ([('"llvm.add"(%row, %j)', '"llvm.mul"(%row, %j)')], 1),
        ([("%y1 =", f'%c = "llvm.mul"(%b, %row) {ADD}\n%y1 ='), ("(%y, %b)", "(%y, %c)")], 1),
        ([('"llvm.add"(%i, %step)', '"llvm.add"(%i, %two)')], 0),
        ([('"llvm.add"(%i, %step)', '"llvm.add"(%i, %i)')], 0),
        ([(STRIDE, '"llvm.sub"(%i, %two)')], 0),
        ([(STRIDE, '"llvm.add"(%i, %j)')], 0),
    ],
    ids=[
        "two arrays",
        "the stride is first",
        "a constant as well",
        "two steps further",
        "an index that is no sum",
        "a product of what changes",
        "neighbours",
        "twice the index",
        "no sum to step by",
        "a stride that changes",
    ],
)
@pytest.mark.parametrize(("first", "step", "row"), [(0, 1, 5), (7, 3, -4), (2, 4, 0)])
def test_a_loop_steps_a_pointer_for_each_array_and_loads_from_the_same_addresses(
    changes: list[tuple[str, str]], count: int, first: int, step: int, row: int
) -> None:
    arguments = (1 << 20, 1 << 30, first, first + 9, step, row)
    if (STRIDE, '"llvm.sub"(%i, %two)') in changes:
        arguments = (1 << 20, 1 << 30, first, first, step, row)
    function, before = changed(*changes), changed(*changes, is_stepped=False)
    assert pointers(function) == ["!llvm.ptr"] * count
    assert loaded(function, *arguments) == loaded(before, *arguments)


def test_a_stepped_pointer_is_not_said_to_be_inside_of_the_array() -> None:
    made = [one for one in changed().walk_inside() if one.name == "llvm.getelementptr"]
    assert {one.attribute("noWrapFlags") for one in made} == {"0 : i32"}
    # Before the loop: y has a row as well; inside: each array has one step, and one to the next round.
    assert len(made) == 1 + 2 + 2 * 2


@pytest.mark.parametrize(
    "change",
    [
        (BRANCH, f"{BRANCH}\n  ^bb4:\n{BRANCH}"),
        (
            BRANCH,
            '"llvm.cond_br"(%more, %first)[^bb1, ^bb3] <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (i1, i64) -> ()',
        ),
        ("%x: !llvm.ptr", "%x: !llvm.ptr<3>"),
    ],
    ids=["two ways in", "a condition", "workgroup memory"],
)
def test_other_loops_stay_as_they_are(change: tuple[str, str]) -> None:
    changes = [change]
    if "<3>" in change[1]:
        changes += [("(!llvm.ptr, i64) -> !llvm.ptr", "(!llvm.ptr<3>, i64) -> !llvm.ptr<3>")]
    assert pointers(changed(*changes)) == []
