"""Device operations without a lowering, expanded in text."""

from __future__ import annotations

import re

import pytest

from mlir_offload.translate.fixup.text import expand_device_operations
from mlir_offload.translate.mlir_text import Locations

LOCATIONS = Locations({"loc1": '"p.mlir":7:3'})
NO_FAULT: frozenset[str] = frozenset()
ASSERT_FAULT = frozenset({"assert_outside_module"})


def expand(*body: str, faults: frozenset[str] = NO_FAULT) -> list[str]:
    lines = ['  "gpu.module"() <{sym_name = "m"}> ({', *body, "  }) : () -> () loc(#loc1)"]
    return list(expand_device_operations(lines, locations=LOCATIONS, faults=faults))


def test_a_module_without_such_operations_is_unchanged() -> None:
    line = '      %1 = "gpu.thread_id"() <{dimension = #gpu<dim x>}> : () -> index loc(#loc1)'

    assert expand(line)[1] == line


def test_subgroups_have_32_threads() -> None:
    lines = expand('      %1 = "gpu.subgroup_size"() : () -> index loc(#loc1)')

    assert (
        lines[1] == '      %1 = "arith.constant"() <{value = 32 : index}> : () -> index loc(#loc1)'
    )


@pytest.mark.parametrize(
    ("operation", "last"),
    [("subgroup_id", "arith.divui"), ("num_subgroups", "arith.ceildivui")],
)
def test_the_result_keeps_its_name_and_place(operation: str, last: str) -> None:
    lines = expand(f'      %1 = "gpu.{operation}"() : () -> index loc(#loc1)')

    assert lines[-2].startswith(f'      %1 = "{last}"(%mo_')
    assert all(line.endswith("loc(#loc1)") for line in lines[1:])


@pytest.mark.parametrize("dimension", ["x", "y", "z"])
def test_a_global_id_is_block_times_extent_plus_thread(dimension: str) -> None:
    lines = expand(f'      %1 = "gpu.global_id"() <{{dimension = #gpu<dim {dimension}>}}> : () -> index loc(#loc1)')  # fmt: skip

    names = re.findall(r'"gpu\.(\w+)"\(\) <\{dimension = #gpu<dim (\w)>', "\n".join(lines))
    assert names == [(name, dimension) for name in ("block_id", "block_dim", "thread_id")]
    assert lines[-2].startswith('      %1 = "arith.addi"(')


def test_new_values_never_clash() -> None:
    operation = '"gpu.subgroup_id"() : () -> index loc(#loc1)'

    lines = expand(f"      %1 = {operation}", f"      %2 = {operation}")

    defined = [line.split(" = ")[0].strip() for line in lines[1:-1]]
    assert len(defined) == len(set(defined))


def test_an_assert_stays_where_the_release_lowers_it() -> None:
    line = '      "cf.assert"(%0) <{msg = "why"}> : (i1) -> () loc(#loc1)'

    assert expand(line)[1] == line


def test_an_assert_becomes_a_call_where_the_release_lowers_it_wrongly() -> None:
    text = "\n".join(
        expand('      "cf.assert"(%0) <{msg = "a \\22b\\22"}> : (i1) -> () loc(#loc1)', faults=ASSERT_FAULT)
    )  # fmt: skip

    assert '"cf.assert"' not in text
    assert 'value = "a \\22b\\22\\00"' in text
    assert "!llvm.array<6 x i8>" in text
    assert 'value = "p.mlir\\00"' in text
    assert "<{value = 7 : i32}>" in text
    assert text.count("llvm.func @__assertfail(") == 1
    assert "llvm.call @__assertfail(" in text


WIDTH = '      %w = "arith.constant"() <{{value = {0} : i32}}> : () -> i32 loc(#loc1)'
SHUFFLE = (
    '      %1:2 = "gpu.shuffle"(%v, %o, %w) <{{mode = #gpu<shuffle_mode {0}>}}> '
    ": (f32, i32, i32) -> (f32, i1) loc(#loc1)"
)


def test_a_shuffle_of_the_whole_subgroup_is_one_operation() -> None:
    text = "\n".join(expand(WIDTH.format(32), SHUFFLE.format("up")))

    assert text.count('"gpu.shuffle"(') == 1
    assert "scf.if" not in text


@pytest.mark.parametrize("width", [WIDTH.format(16), '      %w = "x.y"() : () -> i32 loc(#loc1)'])
def test_lanes_beyond_the_width_do_not_execute_a_shuffle(width: str) -> None:
    lines = expand(width, SHUFFLE.format("xor"))

    begin = next(i for i, line in enumerate(lines) if '"scf.if"(' in line)
    shuffle = next(i for i, line in enumerate(lines) if '"gpu.shuffle"(' in line)
    other = next(i for i, line in enumerate(lines) if line.strip() == "}, {")
    assert begin < shuffle < other
    assert "value = false" in lines[other + 1]


def test_a_name_that_stands_for_another_value_is_no_constant() -> None:
    other = '      %w = "x.y"() : () -> i32 loc(#loc1)'
    lines = expand(WIDTH.format(32), other, SHUFFLE.format("xor"))

    assert any('"scf.if"(' in line for line in lines)


def test_up_among_fewer_lanes_names_the_lane() -> None:
    text = "\n".join(expand(WIDTH.format(8), SHUFFLE.format("up")))

    assert "#gpu<shuffle_mode idx>" in text
    assert "#gpu<shuffle_mode up>" not in text


ALL_REDUCE = [
    '{0}%1 = "gpu.all_reduce"(%v) <{{op = #gpu<all_reduce_op add>, uniform}}> ({{',
    "{0}}}) : (f32) -> f32 loc(#loc1)",
]


@pytest.mark.parametrize(
    ("indent", "before", "barriers"),
    [
        (6, [], 0),
        (8, [], 1),
        (6, ['      "cf.br"()[^bb1] : () -> () loc(#loc1)'], 1),
        (6, ['      "func.call"() <{callee = @f}> : () -> () loc(#loc1)'], 1),
    ],
    ids=["once", "in a region", "between branches", "beside calls"],
)
def test_a_reduction_that_may_run_again_waits_until_its_result_was_read(
    indent: int, before: list[str], barriers: int
) -> None:
    lines = expand(*before, *(line.format(" " * indent) for line in ALL_REDUCE))

    assert sum('"gpu.barrier"()' in line for line in lines) == barriers


def test_printf_gets_integers_of_32_bits_at_least() -> None:
    operation = (
        '      "gpu.printf"(%0, %1, %2) <{format = "%d %d %f"}> : (i8, i1, f16) -> () loc(#loc1)'
    )
    text = "\n".join(expand(operation))

    assert '"arith.extsi"(%0) : (i8) -> i32' in text
    assert '"arith.extui"(%1) : (i1) -> i32' in text
    assert '<{format = "%d %d %f"}> : (i32, i32, f16) -> () loc(#loc1)' in text
