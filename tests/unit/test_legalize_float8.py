"""Conversions of 8-bit floats, expanded to integer operations."""

from __future__ import annotations

import pytest

from mlir_offload.translate.legalize.device_module import expand_device_operations
from mlir_offload.translate.mlir.module import Locations, parse_operations


def expanded(line: str) -> list[str]:
    lines = [
        '  "gpu.module"() ({',
        '    %x = "t.make"() : () -> TYPE',
        line,
        '    "t.use"(%r)',
        "  }) : () -> ()",
    ]
    lines[1] = lines[1].replace("TYPE", line.partition(" : (")[2].partition(") ->")[0])
    (module,) = parse_operations(lines)
    expand_device_operations(module, locations=Locations(), faults=frozenset())
    return [text.strip() for text in module.lines()[2:-2]]


@pytest.mark.parametrize("line", [
    '    %r = "arith.truncf"(%x) : (f32) -> f16',
    '    %r = "arith.extf"(%x) : (vector<4xf16>) -> vector<4xf32>',
])  # fmt: skip
def test_other_conversions_are_left_alone(line: str) -> None:
    assert expanded(line) == [line.strip()]


@pytest.mark.parametrize("shape", ["{}", "vector<4x{}>", "vector<2x2x{}>"])
def test_vectors_are_converted_as_numbers_are(shape: str) -> None:
    before, after = shape.format("f64"), shape.format("f8E5M2")
    lines = expanded(f'    %r = "arith.truncf"(%x) : ({before}) -> {after}')
    assert lines[0].endswith(f'= "arith.bitcast"(%x) : ({before}) -> {shape.format("i64")}')
    assert '"arith.bitcast"(' in lines[-1]
    assert lines[-1].endswith(f" : ({shape.format('i8')}) -> {after}")
