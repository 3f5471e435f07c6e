"""gpu.memcpy and gpu.memset as calls of the runtime, where the upstream lowering is wrong or missing."""

from __future__ import annotations

import re

import pytest

from mlir_offload.translate.host.launch import element_bytes
from mlir_offload.translate.host.memory import TransferRewriter
from mlir_offload.translate.mlir.module import parse_operations

TOKEN = "!gpu.async.token"  # noqa: S105 (a type)
PART = "memref<2x3xf32, strided<[6, 1], offset: 8>>"


def operation(name: str, *types: str) -> str:
    return (
        f'    %t1 = "gpu.{name}"(%t0, %a, %b) : ({TOKEN}, {", ".join(types)}) -> {TOKEN} loc(#loc1)'
    )


def rewritten(rewriter: TransferRewriter, *lines: str) -> list[str]:
    (function,) = parse_operations(['  "func.func"() ({', *lines, "  }) : () -> ()"])
    rewriter.rewrite_function(function)
    return function.lines("  ")[1:-1]


@pytest.mark.parametrize(
    "line",
    [
        operation("memcpy", "memref<?xi8>", "memref<?xi8>"),
        operation("memcpy", "memref<4xf32, #gpu.address_space<global>>", "memref<4xf32>"),
        operation("memset", "memref<?xf16>", "f16"),
        operation("memset", "memref<?x4xi32, 1>", "i32"),
        operation("alloc", "index", "index"),
        '    %0 = "memref.load"(%a) : (memref<f32>) -> f32 loc(#loc1)',
    ],
)
def test_what_the_stock_lowering_does_right_is_left(line: str) -> None:
    rewriter = TransferRewriter()
    assert rewritten(rewriter, line) == [line]
    assert rewriter.declarations(()) == []


@pytest.mark.parametrize("source", [False, True])
def test_a_copy_with_gaps_on_either_side_passes_both_layouts(source: bool) -> None:  # noqa: FBT001
    types = ("memref<2x3xf32>", PART) if source else (PART, "memref<2x3xf32>")
    rewriter = TransferRewriter()
    lines = rewritten(rewriter, operation("memcpy", *types))
    call = next(line for line in lines if "llvm.call" in line)
    assert len(re.findall(r"%\w+", call)) == 7 + 3 * 2
    assert all(line.endswith(" loc(#loc1)") for line in lines)
    assert '"memref.extract_strided_metadata"(%b)' in "\n".join(lines)
    (declared,) = rewriter.declarations(())
    assert declared.lines()[0].startswith(
        "llvm.func @mgpuMemcpyMemRef(!llvm.ptr, i64, !llvm.ptr, i64, i64,"
    )
    assert rewriter.declarations({"mgpuMemcpyMemRef"}) == []


@pytest.mark.parametrize(
    ("kind", "element", "operations"),
    [
        ("memref<?xi1>", "i1", "arith.extui"),
        ("memref<?xindex>", "index", "arith.index_cast"),
        ("memref<?xf64>", "f64", "arith.bitcast"),
        ("memref<?xf8E5M2>", "f8E5M2", "arith.extui"),
        ("memref<?xcomplex<f32>>", "complex<f32>", "arith.ori"),
        ("memref<4xf32, #map>", "f32", "arith.extui"),
    ],
)
def test_a_value_of_any_width_is_set_by_its_bits(kind: str, element: str, operations: str) -> None:
    use = f'    "gpu.wait"(%t1) : ({TOKEN}) -> ()'
    lines = rewritten(TransferRewriter(), operation("memset", kind, element), use)
    text = "\n".join(lines)
    assert "@mgpuMemsetMemRef(" in text
    assert f'"{operations}"' in text
    assert lines[-1] == use.replace("%t1", "%t0")


# As opt folds `getelementptr (T, ptr null, i64 1)` with the data layout of x86-64.
BYTES = {
    "i1": 1,
    "i24": 4,
    "i65": 16,
    "i264": 48,
    "index": 8,
    "bf16": 2,
    "f80": 16,
    "complex<f32>": 8,
    "vector<8xi1>": 1,
    "vector<9xi1>": 2,
    "vector<3x3xi1>": 3,
    "vector<3xi4>": 2,
    "vector<5xi24>": 16,
    "vector<3xf32>": 16,
    "vector<2x3xf32>": 32,
    "vector<3xf80>": 32,
    "vector<f32>": 4,
    "memref<f32>": 24,
    "memref<2x?xi1>": 56,
    "memref<*xf32>": 16,
}


def test_elements_have_the_distance_that_llvm_gives_them() -> None:
    assert {kind: element_bytes(kind) for kind in BYTES} == BYTES
