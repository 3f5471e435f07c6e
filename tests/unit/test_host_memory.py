"""The descriptions of host memory that launches pass to the runtime."""

from __future__ import annotations

import pytest

from mlir_offload.translate.host.launch import describe_launches, element_bytes
from mlir_offload.translate.mlir.module import parse_operations

LAUNCH = (
    '    "gpu.launch_func"({0}) <{{kernel = @m::@k, operandSegmentSizes = array<i32: {1}, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, {2}, 0>}}>'
    " : ({3}) -> () loc(#loc1)"
)


def launch(*types: str, tokens: int = 0) -> str:
    before = [*["!gpu.async.token"] * tokens, *["index"] * 6]
    names = ", ".join(f"%{number}" for number in range(len(before) + len(types)))
    return LAUNCH.format(names, tokens, len(types), ", ".join((*before, *types)))


def described(line: str) -> list[list[str]]:
    """Return the numbers of each call before the launch."""
    (function,) = parse_operations(['"func.func"() ({', line, "}) : () -> ()"])
    declared = describe_launches([function])
    *before, last = function.lines("  ")[1:-1]
    assert last == line
    if not declared:
        assert not before
        return []
    assert declared[0].lines() == ["llvm.func @mgpuDescribeMemRef(i32, i32, i64)"]
    numbers = [text.split("value = ")[1].split(" ")[0] for text in before if "constant" in text]
    assert [text for text in before if "llvm.call @mgpuDescribeMemRef(" in text] == before[3::4]
    return [numbers[at : at + 3] for at in range(0, len(numbers), 3)]


@pytest.mark.parametrize("tokens", [0, 1])
def test_each_memref_is_told_by_its_first_parameter_its_rank_and_its_elements(tokens: int) -> None:
    types = ("index", "memref<4x?xf64, strided<[?, 1], offset: ?>>", "f32", "memref<i8>")

    assert described(launch(*types, tokens=tokens)) == [["1", "2", "8"], ["9", "0", "1"]]


def test_what_holds_no_memref_is_as_it_was() -> None:
    assert described(launch("index", "f32")) == []
    assert described('    "func.return"() : () -> ()') == []


def test_unranked_memrefs_are_two_parameters_that_nothing_is_known_of() -> None:
    assert described(launch("memref<*xf32>", "memref<2xi16>")) == [["2", "1", "2"]]


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("i1", 1), ("i8", 1), ("i24", 4), ("i64", 8), ("index", 8), ("bf16", 2), ("f16", 2), ("f64", 8), ("f8E4M3FN", 1),
        ("complex<f32>", 8), ("vector<4xf32>", 16), ("vector<3xf32>", 16), ("vector<2x3xf32>", 32), ("vector<f32>", 4), ("!llvm.ptr", 0),
    ],
)  # fmt: skip
def test_elements_are_as_far_apart_as_in_memory(kind: str, size: int) -> None:
    assert element_bytes(kind) == size
