"""gpu.alloc of memrefs with a layout: contiguous memory that is viewed with that layout."""

from __future__ import annotations

import pytest

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.host.memory import AllocationRewriter
from mlir_offload.translate.mlir.module import Locations, parse_operations

ALIASES = {
    "#rows": "affine_map<(d0, d1)[s0] -> (d0 * s0 + d1)>",
    "#tiles": "affine_map<(d0)[s0] -> (d0 floordiv s0, d0 mod s0)>",
    "#blocks": "affine_map<(d0)[s0] -> ((d0 floordiv s0) * 16)>",
    "#turned": "affine_map<(d0, d1) -> (d1, d0)>",
}


def rewritten(kind: str, segments: str, operands: str = "", *, is_async: bool = False) -> list[str]:
    given = [*(["%t"] if is_async else []), *(operands.split(", ") if operands else [])]
    types = [*(["!gpu.async.token"] if is_async else []), *["index"] * len(operands.split())]
    results = f"({kind}, !gpu.async.token)" if is_async else kind
    line = (
        f'    %0{":2" if is_async else ""} = "gpu.alloc"({", ".join(given)}) '
        f"<{{operandSegmentSizes = array<i32: {segments}>}}> : ({', '.join(types)}) -> {results}"
    )
    use = f'    "test.use"(%0{"#0" if is_async else ""}) : ({kind}) -> ()'
    (function,) = parse_operations(['  "func.func"() ({', line, use, "  }) : () -> ()"])
    AllocationRewriter(ALIASES, Locations({})).rewrite_function(function)
    return [one.strip() for one in function.lines("  ")[1:-1]]


@pytest.mark.parametrize("kind", ["memref<?xf32>", "memref<?xf32, 1>", "memref<?xf32, #gpu.x>"])
def test_contiguous_memory_is_left(kind: str) -> None:
    (line, _) = rewritten(kind, "0, 1, 0", "%n")
    assert line.endswith(f": (index) -> {kind}")


def test_an_affine_map_is_applied_at_the_corners_and_the_memory_viewed() -> None:
    kind = "memref<?x4xf32, #rows, 1>"
    lines = rewritten(kind, "1, 1, 1", "%n, %s", is_async=True)
    applied = [line for line in lines if '"affine.apply"' in line]
    assert len(applied) == 3
    assert all("%s) <{map = #rows}> : (index, index, index) -> index" in line for line in applied)
    (memory,) = (line for line in lines if '"gpu.alloc"' in line)
    assert "array<i32: 1, 1, 0>" in memory
    assert memory.endswith("-> (memref<?xf32, 1>, !gpu.async.token)")
    (view,) = (line for line in lines if "memref.reinterpret_cast" in line)
    assert "sizes: [%n, 4]" in view
    assert view.endswith("to memref<?x4xf32, strided<[?, ?], offset: ?>, 1>")
    cast, use = lines[-2:]
    assert cast.endswith(f"-> {kind}")
    assert use == f'"test.use"({cast.partition(" = ")[0]}) : ({kind}) -> ()'


def test_a_strided_layout_takes_its_offset_first() -> None:
    lines = rewritten("memref<3x?xf32, strided<[?, 2], offset: ?>>", "0, 1, 2", "%n, %o, %s")
    (view,) = (line for line in lines if "memref.reinterpret_cast" in line)
    assert "offset: [%o], sizes: [3, %n], strides: [%s, %mo" in view
    assert not any("affine" in line for line in lines)


@pytest.mark.parametrize("layout", ["#tiles", "#blocks", "#turned"])
def test_a_layout_without_strides_is_refused(layout: str) -> None:
    with pytest.raises(SourceError, match="no strides: affine_map<") as error:
        rewritten(f"memref<?xf32, {layout}>", "0, 1, 0", "%n")
    assert "strided<...>" in str(error.value.hint)
