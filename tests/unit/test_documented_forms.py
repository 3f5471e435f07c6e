"""Forms in the dialect's documentation that upstream passes do not accept as written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mlir_offload.translate.legalize.device_module import use_default_space, use_documented_forms
from mlir_offload.translate.mlir.module import parse_operations

REDUCTION = '%1 = "gpu.all_reduce"(%0) <{op = #gpu<all_reduce_op add>}> ({\n}) : (f32) -> f32'
MARKED = '%1 = "gpu.all_reduce"(%0) <{uniform, op = #gpu<all_reduce_op add>}> ({\n}) : (f32) -> f32'
LOOP = (
    '"scf.for"(%lower, %upper, %one) ({\n^bb0(%i: index):\n  BODY\n}) : (index, index, index) -> ()'
)


def kernel(*body: str, parameters: str = "%lower: index, %upper: index") -> tuple[str, ...]:
    lines = [line for text in body for line in text.split("\n")]
    return (
        '"gpu.module"() <{sym_name = "m"}> ({',
        '  "gpu.func"() <{function_type = (index, index) -> ()}> ({',
        f"  ^bb0({parameters}):",
        *(f"    {line}" if not line.startswith("^bb1") else f"  {line}" for line in lines),
        '    "gpu.return"() : () -> ()',
        "  }) {gpu.kernel} : () -> ()",
        "}) : () -> ()",
    )


def with_documented_forms(lines: Sequence[str]) -> tuple[str, ...]:
    (module,) = parse_operations(lines)
    use_documented_forms(module)
    return tuple(module.lines())


def without_global_space(line: str) -> list[str]:
    (operation,) = parse_operations([line])
    use_default_space(operation)
    return operation.lines()


def nested(outer: str, inner: str) -> str:
    return outer.replace("BODY", inner.replace("\n", "\n  "))


ONE = '%one = "arith.constant"() <{value = 1 : index}> : () -> index'
THREAD = '%t = "gpu.thread_id"() <{dimension = #gpu<dim x>}> : () -> index'
BLOCK = '%b = "gpu.block_dim"() <{dimension = #gpu<dim x>}> : () -> index'
SUM = '%upper = "arith.addi"(%b, %one) : (index, index) -> index'
THREADS_SUM = '%upper = "arith.addi"(%t, %one) : (index, index) -> index'
IF = '"scf.if"(%c) ({\n  BODY\n}, {\n}) : (i1) -> ()'
INNER = LOOP.replace("%lower", "%i").replace("(%i: index)", "(%j: index)")


@pytest.mark.parametrize(
    "body",
    [
        (REDUCTION,),
        (IF.replace("BODY", '"test.any"() : () -> ()'), REDUCTION),
        (ONE, nested(LOOP, REDUCTION)),
        (ONE, BLOCK, SUM, nested(LOOP, REDUCTION)),
        (ONE, nested(LOOP, nested(INNER, REDUCTION))),
        (REDUCTION, REDUCTION),
    ],
    ids=["entry", "after-if", "loop", "computed-bounds", "loop-in-loop", "two"],
)
def test_a_reduction_that_all_threads_reach_is_uniform(body: tuple[str, ...]) -> None:
    text = "\n".join(with_documented_forms(kernel(*body)))
    assert "<{uniform, op" in text
    assert '"gpu.all_reduce"(%0) <{op' not in text


@pytest.mark.parametrize(
    "body",
    [
        (nested(IF, REDUCTION),),
        (THREAD, ONE, THREADS_SUM, nested(LOOP, REDUCTION)),
        (ONE, nested(LOOP, nested(IF, REDUCTION))),
        (ONE, nested(IF, nested(LOOP, REDUCTION))),
        ('"cf.br"()[^bb1] : () -> ()', "^bb1:", REDUCTION),
        (ONE, nested(LOOP.replace("%upper", "%x#0"), REDUCTION)),
        (ONE, nested(LOOP, '"test.any"() : () -> ()'), nested(IF, REDUCTION)),
    ],
    ids=["if", "bounds", "if-in-loop", "loop-in-if", "block", "result", "if-after-loop"],
)
def test_a_reduction_that_some_threads_may_not_reach_is_left(body: tuple[str, ...]) -> None:
    lines = kernel(*body)
    assert with_documented_forms(lines) == lines


def test_a_reduction_in_a_function_that_a_branch_may_call_is_left() -> None:
    lines = tuple(
        line.replace("gpu.func", "func.func").replace(" {gpu.kernel}", "")
        for line in kernel(REDUCTION)
    )
    assert with_documented_forms(lines) == lines


def test_a_reduction_with_a_region_is_marked_too() -> None:
    body = '%1 = "gpu.all_reduce"(%0) ({\n^bb0(%a: f32, %b: f32):\n  "gpu.yield"(%a) : (f32) -> ()\n}) : (f32) -> f32'
    text = "\n".join(with_documented_forms(kernel(body)))
    assert '"gpu.all_reduce"(%0) <{uniform}> ({' in text


def test_global_memory_of_a_device_is_memory_as_any_other_to_the_host() -> None:
    before = '%0 = "gpu.alloc"(%n) {note = "memref<1xf32, 1>"} : (index) -> memref<?xf32, 1>'
    after = '%0 = "gpu.alloc"(%n) {note = "memref<1xf32, 1>"} : (index) -> memref<?xf32>'
    assert without_global_space(before) == [after]
    other = '"x.y"() : () -> (memref<2x1xf32>, vector<1>, memref<4xf32, 3>)'
    assert without_global_space(other) == [other]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("memref<1xf32, 5>", "memref<1xf32, #gpu.address_space<private>>"),
        ("memref<4xf32, strided<[1]>, 5>", "memref<4xf32, strided<[1]>, #gpu.address_space<private>>"),
        ("memref<2x5xf32, 3>", "memref<2x5xf32, 3>"),
        ("vector<5xf32>, 5", "vector<5xf32>, 5"),
        ('"memref<1xf32, 5>"', '"memref<1xf32, 5>"'),
    ],
)  # fmt: skip
def test_private_memory_is_named_as_the_dialect_names_it(before: str, after: str) -> None:
    lines = kernel(parameters=f"%p: {before}, %q: {before}")
    expected = kernel(parameters=f"%p: {after}, %q: {after}")
    assert with_documented_forms(lines) == expected
