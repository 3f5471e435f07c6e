"""Expansion of device operations without a lowering."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.kind_lowering import (
    FORM_NAMES,
    NVVM_FORM,
    SPIRV_FORM,
    DeviceForm,
    parse_form,
)
from mlir_offload.translate.legalize.device_module import (
    expand_device_operations,
    load_member,
    patterns_for,
)
from mlir_offload.translate.legalize.imported import check_wavefronts
from mlir_offload.translate.mlir.module import Locations, parse_operations

LOCATIONS = Locations({"#loc1": 'loc("p.mlir":7:3)'})
NO_FAULT: frozenset[str] = frozenset()
ASSERT_FAULT = frozenset({"assert_outside_module"})


def expand(
    *body: str, faults: frozenset[str] = NO_FAULT, form: DeviceForm = NVVM_FORM
) -> list[str]:
    lines = ['  "gpu.module"() <{sym_name = "m"}> ({', *body, "  }) : () -> () loc(#loc1)"]
    (module,) = parse_operations(lines)
    expand_device_operations(module, locations=LOCATIONS, faults=faults, form=form)
    return module.lines("  ")


def test_a_module_without_such_operations_is_unchanged() -> None:
    line = '    %1 = "gpu.thread_id"() <{dimension = #gpu<dim x>}> : () -> index loc(#loc1)'

    assert expand(line)[1] == line


@pytest.mark.parametrize(
    ("operation", "made"),
    [("llvm.intr.fabs", "math.absf"), ("llvm.intr.sqrt", "math.sqrt"), ("llvm.frem", "arith.remf")],
)
def test_mathematics_of_the_llvm_dialect_is_that_of_math(operation: str, made: str) -> None:
    line = f'    %1 = "{operation}"(%0) <{{fastmathFlags = #llvm.fastmath<contract>}}> : (f32) -> f32 loc(#loc1)'

    assert (
        f' = "{made}"(%0) <{{fastmath = #arith.fastmath<contract>}}> : (f32) -> f32 loc(#loc1)'
        in expand(line)[1]
    )


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("f16", '"llvm.intr.fma"(%0, %0, %0) <{fastmathFlags = #llvm.fastmath<contract>}>'),
        ("bf16", '"llvm.intr.fma"('),
        ("vector<4xf16>", '"llvm.intr.fma"('),
        ("vector<2x3xf16>", '"vector.shape_cast"(%0) : (vector<2x3xf16>) -> vector<6xf16>'),
        ("vector<2x[3]xf16>", '"math.fma"('),
        ("f32", '"math.fma"('),
    ],
)
def test_products_and_sums_of_16_bits_are_not_those_of_f32_rounded_again(
    kind: str, made: str
) -> None:
    line = f'    %1 = "math.fma"(%0, %0, %0) <{{fastmath = #arith.fastmath<contract>}}> : ({kind}, {kind}, {kind}) -> {kind} loc(#loc1)'

    assert f" = {made}" in expand(line)[1]


@pytest.mark.parametrize(
    ("kind", "form", "faults", "made"),
    [
        ("bf16", NVVM_FORM, {"bfloat_fma"}, "f64"),
        ("vector<2x3xbf16>", NVVM_FORM, {"bfloat_fma"}, "vector<2x3xf64>"),
        ("vector<[2]xbf16>", NVVM_FORM, {"bfloat_fma"}, "vector<[2]xf64>"),
        ("f16", NVVM_FORM, {"bfloat_fma"}, '"llvm.intr.fma"('),
        ("bf16", SPIRV_FORM, set(), "f32"),
        ("vector<2xbf16>", SPIRV_FORM, set(), "vector<2xf32>"),
    ],
)
def test_products_and_sums_of_bf16_without_an_instruction_are_computed_in_wider_numbers(
    kind: str, form: DeviceForm, faults: set[str], made: str
) -> None:
    line = f'    %1 = "math.fma"(%0, %0, %0) : ({kind}, {kind}, {kind}) -> {kind} loc(#loc1)'
    lines = expand(line, faults=frozenset(faults), form=form)

    wanted = made if "fma" in made else f'"arith.extf"(%0) : ({kind}) -> {made} '
    assert any(wanted in line for line in lines)


@pytest.mark.parametrize(
    ("operation", "fitting"),
    [
        (
            'llvm.func"() <{target_features = #llvm.target_features<["+dpp", "+wavefrontsize64"]>',
            64,
        ),
        ('llvm.func"() <{target_cpu = "gfx90a"', 64),
        ('llvm.func"() <{target_cpu = "gfx11-generic"', 32),
        ('llvm.mlir.global"() <{value = 1 : i8', 64),
        ('llvm.mlir.global"() <{value = 0 : i8', 32),
        ('llvm.mlir.global"() <{constant', 0),
        ('llvm.func"() <{target_cpu = "sm_90"', 0),
    ],
)
def test_imported_code_is_for_wavefronts_of_one_size(operation: str, fitting: int) -> None:
    text = f'"gpu.module"() <{{sym_name = "m"}}> ({{\n  "{operation}, sym_name = "__oclc_wavefrontsize64"}}> ({{\n  }}) : () -> ()\n}}) : () -> ()'
    (module,) = parse_operations(text.splitlines())
    for size in (32, 64):
        forms = [DeviceForm("rocdl", size), NVVM_FORM]
        if fitting in {0, size}:
            check_wavefronts(module, forms, Locations({}))
            continue
        with pytest.raises(SourceError, match=f"was compiled for wavefronts of {fitting} threads"):
            check_wavefronts(module, forms, Locations({}))


def test_subgroups_have_32_threads() -> None:
    lines = expand('    %1 = "gpu.subgroup_size"() : () -> index loc(#loc1)')

    assert (
        lines[1] == '    %mo_1 = "arith.constant"() <{value = 32 : index}> : () -> index loc(#loc1)'
    )


@pytest.mark.parametrize(
    ("operation", "last"),
    [("subgroup_id", "arith.divui"), ("num_subgroups", "arith.divui")],
)
def test_what_is_made_has_the_place_of_the_operation(operation: str, last: str) -> None:
    lines = expand(f'    %1 = "gpu.{operation}"() : () -> index loc(#loc1)')

    assert re.match(rf'    %mo_\d+ = "{last}"\(%mo_', lines[-2])
    assert all(line.endswith("loc(#loc1)") for line in lines[1:])


@pytest.mark.parametrize("dimension", ["x", "y", "z"])
def test_a_global_id_is_block_times_extent_plus_thread(dimension: str) -> None:
    lines = expand(f'    %1 = "gpu.global_id"() <{{dimension = #gpu<dim {dimension}>}}> : () -> index loc(#loc1)')  # fmt: skip

    names = re.findall(r'"gpu\.(\w+)"\(\) <\{dimension = #gpu<dim (\w)>', "\n".join(lines))
    assert names == [(name, dimension) for name in ("block_id", "block_dim", "thread_id")]
    assert re.match(r'    %mo_\d+ = "arith.addi"\(', lines[-2])


def test_new_values_never_clash() -> None:
    operation = '"gpu.subgroup_id"() : () -> index loc(#loc1)'

    lines = expand(f"    %1 = {operation}", f"    %2 = {operation}")

    defined = [line.split(" = ")[0].strip() for line in lines[1:-1]]
    assert len(defined) == len(set(defined))


def test_an_assert_stays_where_the_release_lowers_it() -> None:
    line = '    "cf.assert"(%0) <{msg = "why"}> : (i1) -> () loc(#loc1)'

    assert expand(line)[1] == line


def test_an_assert_becomes_a_call_where_the_release_lowers_it_wrongly() -> None:
    text = "\n".join(
        expand('    "cf.assert"(%0) <{msg = "a \\22b\\22"}> : (i1) -> () loc(#loc1)', faults=ASSERT_FAULT)
    )  # fmt: skip

    assert '"cf.assert"' not in text
    assert 'value = "a \\22b\\22\\00"' in text
    assert "!llvm.array<6 x i8>" in text
    assert 'value = "p.mlir\\00"' in text
    assert "<{value = 7 : i32}>" in text
    assert text.count("llvm.func @__assertfail(") == 1
    assert "llvm.call @__assertfail(" in text


WIDTH = '    %w = "arith.constant"() <{{value = {0} : i32}}> : () -> i32 loc(#loc1)'
SHUFFLE = (
    '    %1:2 = "gpu.shuffle"(%v, %o, %w) <{{mode = #gpu<shuffle_mode {0}>}}> '
    ": (f32, i32, i32) -> (f32, i1) loc(#loc1)"
)


def test_a_shuffle_of_the_whole_subgroup_is_one_operation() -> None:
    text = "\n".join(expand(WIDTH.format(32), SHUFFLE.format("up")))

    assert text.count('"gpu.shuffle"(') == 1
    assert "scf.if" not in text


@pytest.mark.parametrize("width", [WIDTH.format(16), '    %w = "x.y"() : () -> i32 loc(#loc1)'])
def test_lanes_beyond_the_width_do_not_execute_a_shuffle(width: str) -> None:
    lines = expand(width, SHUFFLE.format("xor"))

    begin = next(i for i, line in enumerate(lines) if '"scf.if"(' in line)
    shuffle = next(i for i, line in enumerate(lines) if '"gpu.shuffle"(' in line)
    other = next(i for i, line in enumerate(lines) if line.strip() == "}, {")
    assert begin < shuffle < other
    assert "value = false" in lines[other + 1]


def test_a_name_that_stands_for_another_value_is_no_constant() -> None:
    other = '    %w = "x.y"() : () -> i32 loc(#loc1)'
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


SUBGROUP_REDUCE = '    %2 = "gpu.subgroup_reduce"(%v) <{{op = #gpu<all_reduce_op add>{0}}}> : (i32) -> i32 loc(#loc1)'
ROTATE = '    %3:2 = "gpu.rotate"(%v) <{offset = 1 : i32, width = 4 : i32}> : (i32) -> (i32, i1) loc(#loc1)'
UNKNOWN_WIDTH = '    %w = "x.y"() : () -> i32 loc(#loc1)'
REDUCED = [
    *(line.format("      ") for line in ALL_REDUCE),
    SUBGROUP_REDUCE.format(""),
    SUBGROUP_REDUCE.format(", cluster_size = 4 : i32"),
    ROTATE,
]


LANE_0 = [
    '    %4 = "gpu.warp_execute_on_lane_0"(%lane, %a) <{{warp_size = {0} : i64}}> ({{',
    "    ^bb0(%whole: vector<{1}xi32>):",
    '      "gpu.yield"(%whole) : (vector<{1}xi32>) -> () loc(#loc1)',
    "    }}) : (index, vector<2xi32>) -> vector<2xi32> loc(#loc1)",
]


TOO_MANY = {
    "shuffle": (64, [WIDTH.format(64), SHUFFLE.format("xor")]),
    "no lane": (0, [WIDTH.format(0), SHUFFLE.format("idx")]),
    "rotate": (64, [ROTATE.replace("width = 4", "width = 64")]),
    "cluster": (64, [SUBGROUP_REDUCE.format(", cluster_size = 64 : i32")]),
    "lane 0": (64, [line.format(64, 128) for line in LANE_0]),
    "stride": (
        128,
        [SUBGROUP_REDUCE.format(", cluster_size = 16 : i32, cluster_stride = 8 : i32")],
    ),
}


@pytest.mark.parametrize("form", FORM_NAMES)
@pytest.mark.parametrize("case", TOO_MANY)
def test_lanes_that_a_subgroup_does_not_have_are_refused(case: str, form: str) -> None:
    count, lines = TOO_MANY[case]
    size = parse_form(form).subgroup_size
    if 0 < count <= size:
        assert expand(*lines, form=parse_form(form))
        return
    with pytest.raises(SourceError, match=rf"{count} lanes") as raised:
        expand(*lines, form=parse_form(form))
    assert f"{size} threads" in raised.value.message
    assert raised.value.location == "p.mlir:7:3"


def widths(lines: Sequence[str]) -> list[int | None]:
    """Return the width of each shuffle, None where it is not a constant."""
    constants = {
        match[1]: int(match[2])
        for line in lines
        if (match := re.match(r' *(%\w+) = "arith.constant"\(\) <\{value = (\d+) : i32\}>', line))
    }
    operands = (re.search(r'"gpu.shuffle"\(%\S+, \S+, (%\w+)\)', line) for line in lines)
    return [constants.get(match[1]) for match in operands if match]


@pytest.mark.parametrize("form", FORM_NAMES)
def test_every_shuffle_made_here_has_a_width_that_is_a_known_power_of_two(form: str) -> None:
    size = parse_form(form).subgroup_size
    lane_0 = [line.format(size, 2 * size) for line in LANE_0]
    alone = widths(expand(*REDUCED, form=parse_form(form)))
    found = widths(expand(*REDUCED, *lane_0, form=parse_form(form)))

    assert len(found) > len(alone) + size
    assert len(alone) > 10
    assert all(width is not None and width.bit_count() == 1 for width in found)


def test_an_older_release_has_the_first_lane_in_the_vector_dialect() -> None:
    newer = [line.format(32, 64) for line in LANE_0]
    older = [line.replace('"gpu.', '"vector.') for line in newer]

    assert older != newer
    assert expand(*older) == expand(*newer)


@pytest.mark.parametrize("form", ["rocdl32", "rocdl64"])
@pytest.mark.parametrize("mode", ["xor", "up", "down", "idx"])
def test_on_amd_a_shuffle_of_an_unknown_width_becomes_one_of_the_subgroup(
    form: str, mode: str
) -> None:
    lines = expand(UNKNOWN_WIDTH, SHUFFLE.format(mode), form=parse_form(form))

    assert widths(lines) == [parse_form(form).subgroup_size]


@pytest.mark.parametrize("form", FORM_NAMES)
def test_one_thread_of_a_subgroup_writes_its_part_and_one_the_sum(form: str) -> None:
    lines = expand(*(line.format("      ") for line in ALL_REDUCE), form=parse_form(form))
    stores = [number for number, line in enumerate(lines) if "llvm.store" in line]
    barriers = [number for number, line in enumerate(lines) if '"gpu.barrier"()' in line]

    assert stores[0] < barriers[0] < stores[1] < barriers[1]
    first = next(re.findall(r"%\w+", line)[0] for line in lines if "predicate = 0" in line)
    conditions = [number for number, line in enumerate(lines) if f'"scf.if"({first})' in line]
    assert len(conditions) == len(stores) == 2
    assert all(begin < store for begin, store in zip(conditions, stores, strict=True))


def test_reductions_over_the_block_share_workgroup_memory() -> None:
    twice = [line.format("      ") for line in ALL_REDUCE] * 2
    text = "\n".join(expand(*twice))

    assert text.count("llvm.mlir.global internal @__mo_all_reduce_f32()") == 1


def test_a_region_combines_only_what_threads_brought() -> None:
    head, tail = (line.format("      ") for line in ALL_REDUCE)
    region = [
        "      ^bb0(%p: f32 loc(#loc1), %q: f32 loc(#loc1)):",
        '      %r = "arith.divf"(%p, %q) : (f32, f32) -> f32 loc(#loc1)',
        '        "gpu.yield"(%r) : (f32) -> () loc(#loc1)',
    ]
    lines = expand(head.replace("op = #gpu<all_reduce_op add>, ", ""), *region, tail)

    made = [number for number, line in enumerate(lines) if '"scf.execute_region"() ({' in line]
    # All lanes of a full subgroup have brought a value.
    full, rest = made[:5], made[5:]
    assert not any('"scf.if"(' in lines[number - 1] for number in full[1:])
    assert len(rest) == 5 + 3 + 3
    assert all('"scf.if"(' in lines[number - 1] for number in rest)
    assert not any('"gpu.yield"' in line for line in lines)


FUNCTION = '    "gpu.func"() <{{function_type = () -> (), known_block_size = array<i32: {0}>}}> ({{'


@pytest.mark.parametrize(
    ("size", "is_full"), [("64, 1, 1", True), ("8, 8, 3", True), ("20, 3, 1", False)]
)
def test_a_subgroup_is_taken_for_full_where_the_block_is_known_to_be(
    size: str, *, is_full: bool
) -> None:
    body = (FUNCTION.format(size), SUBGROUP_REDUCE.format(""), "    }) : () -> ()")
    text = "\n".join(expand(*body))

    assert ("scf.if" not in text) is is_full


def test_printf_gets_integers_of_32_bits_at_least() -> None:
    operation = (
        '    "gpu.printf"(%0, %1, %2) <{format = "%d %d %f"}> : (i8, i1, f16) -> () loc(#loc1)'
    )
    text = "\n".join(expand(operation))

    assert '"arith.extsi"(%0) : (i8) -> i32' in text
    assert '"arith.extui"(%1) : (i1) -> i32' in text
    assert '<{format = "%d %d %f"}> : (i32, i32, f16) -> () loc(#loc1)' in text


@pytest.mark.parametrize(
    ("form", "block", "shuffles", "barriers"),
    [
        ("spirv32", "13, 4, 2", 0, 8),
        ("spirv32", "104, 1, 1", 13, 2),
        ("nvvm32", "13, 4, 2", 13, 2),
        ("nvvm32", "32, 4, 2", 8, 2),
    ],
)
def test_a_block_whose_subgroups_a_device_forms_freely_is_reduced_without_them(
    form: str, block: str, shuffles: int, barriers: int
) -> None:
    body = (
        f'    "gpu.func"() <{{known_block_size = array<i32: {block}>}}> ({{',
        '    %1 = "gpu.all_reduce"(%v) <{op = #gpu<all_reduce_op add>, uniform}> ({',
        "      }) : (i32) -> i32 loc(#loc1)",
        "    }) : () -> () loc(#loc1)",
    )
    text = "\n".join(expand(*body, form=parse_form(form)))

    assert (text.count('"gpu.shuffle"('), text.count('"gpu.barrier"(')) == (shuffles, barriers)


@pytest.mark.parametrize("form", ["nvvm32", "rocdl64", "rocdl32", "spirv32"])
@pytest.mark.parametrize("faults", [frozenset(), frozenset({"assert_outside_module"})], ids=len)
def test_every_pattern_that_is_named_exists(form: str, faults: frozenset[str]) -> None:
    for name in patterns_for(parse_form(form), faults).values():
        assert callable(load_member(name)), name


def test_a_vector_of_several_dimensions_is_transferred() -> None:
    load = '    %v = "vector.load"(%m, %i, %j, %k) : (memref<?x4x8xf16>, index, index, index) -> vector<4x8xf16>'
    store = '    "vector.store"(%v, %n, %i, %j) : (vector<4x8xf16>, memref<8x8xf16>, index, index) -> ()'
    text = "\n".join(expand(load, store))
    assert '"arith.constant"() <{value = 0.0 : f16}>' in text
    assert "array<i32: 1, 3, 1, 0>, permutation_map = affine_map<(d0, d1, d2) -> (d1, d2)>" in text
    assert "array<i32: 1, 1, 2, 0>, permutation_map = affine_map<(d0, d1) -> (d0, d1)>" in text
    assert text.count("in_bounds = [true, true]") == 2
    assert "vector.load" not in text
    assert "vector.store" not in text


@pytest.mark.parametrize(
    ("memref", "vector"),
    [("memref<?xf32>", "vector<4xf32>"), ("memref<?xvector<2x4xf32>>", "vector<2x4xf32>")],
)
def test_a_vector_that_one_instruction_loads_is_left(memref: str, vector: str) -> None:
    line = f'    %v = "vector.load"(%m, %i) : ({memref}, index) -> {vector}'
    assert expand(line)[1] == line
