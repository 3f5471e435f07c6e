"""Elementwise operations on subgroup matrices: one for each register of a thread."""

from __future__ import annotations

import re

import pytest

from mlir_offload.translate.legalize.device_module import expand_device_operations
from mlir_offload.translate.mlir.module import Locations, parse_operations
from mlir_offload.translate.pipelines import load_refusals


def expanded(kind: str, matrix: str, operands: str = "%a, %b") -> list[str]:
    given = ", ".join([matrix] * (operands.count("%")))
    line = f'    %r = "gpu.subgroup_mma_elementwise"({operands}) <{{opType = #gpu<mma_element_wise {kind}>}}> : ({given}) -> {matrix}'  # fmt: skip
    (module,) = parse_operations(
        ['  "gpu.module"() ({', line, '    "t.use"(%r)', "  }) : () -> ()"]
    )
    expand_device_operations(module, locations=Locations(), faults=frozenset())
    return [text.strip() for text in module.lines()[1:-2]]


@pytest.mark.parametrize(
    ("matrix", "kind", "operation", "held", "count"),
    [
        ('16x16xf16, "AOp"', "addf", "arith.addf", "vector<2xf16>", 8),
        ('16x16xf16, "COp"', "maxf", "arith.maximumf", "vector<2xf16>", 4),
        ('16x16xf32, "COp"', "divf", "arith.divf", "f32", 8),
        ('16x8xf32, "AOp"', "subf", "arith.subf", "f32", 4),
        ('8x8xf64, "COp"', "mulf", "arith.mulf", "f64", 2),
        ('8x4xf64, "AOp"', "minf", "arith.minimumf", "f64", 1),
        ('16x16xi32, "COp"', "divu", "arith.divui", "i32", 8),
        ('32x16xsi8, "AOp"', "addi", "arith.addi", "vector<4xi8>", 4),
        ('16x8xui8, "BOp"', "muli", "arith.muli", "vector<4xi8>", 1),
    ],
)
def test_each_register_is_computed(
    matrix: str, kind: str, operation: str, held: str, count: int
) -> None:
    type_ = f"!gpu.mma_matrix<{matrix}>"
    lines = expanded(kind, type_)
    made = [line for line in lines if f'"{operation}"' in line]
    assert len(made) == count
    assert all(line.endswith(f": ({held}, {held}) -> {held}") for line in made)
    assert re.match(r'%mo_\d+ = "builtin.unrealized_conversion_cast"\(', lines[-1])
    assert lines[-1].endswith(f" -> {type_}")


def test_integers_are_negated_by_subtraction() -> None:
    lines = expanded("negates", '!gpu.mma_matrix<16x16xi32, "COp">', "%a")
    assert (
        len([line for line in lines if re.search(r'"arith\.subi"\(%mo_\d+, %mo_\d+\)', line)]) == 8
    )
    assert len([line for line in lines if "value = 0 : i32" in line]) == 8


@pytest.mark.parametrize("kind", ["extf", "truncf"])
def test_elements_of_another_width_are_refused(kind: str) -> None:
    rows = load_refusals("device")
    refused = [
        pattern
        for row in rows
        if row.operation == "gpu.subgroup_mma_elementwise"
        for pattern in row.attributes.get("opType", ())
    ]
    assert f"#gpu<mma_element_wise {kind}>" in refused
