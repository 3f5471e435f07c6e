"""Products of vectors that would take too long to compile are detected before compilation."""

from __future__ import annotations

import pytest

from mlir_offload.toolchain.target import parse_offload_arch
from mlir_offload.translate.legalize.split import SplitOptions, split_program

_MAPS = ("(d0, d1, d2, d3) -> (d0, d1, d3)", "(d0, d1, d2, d3) -> (d0, d3, d2)")
_RESULT = "(d0, d1, d2, d3) -> (d0, d1, d2)"


def warnings_of(batch: int, rows: int, columns: int, inner: int, arch: str) -> tuple[str, ...]:
    left, right, made = (
        f"vector<{batch}x{one}xf32>"
        for one in (f"{rows}x{inner}", f"{inner}x{columns}", f"{rows}x{columns}")
    )
    types = f"({left}, {right}, {made})"
    arguments = f"%a: {left}, %b: {right}, %c: {made}"
    text = f"""#map = affine_map<{_MAPS[0]}>
"builtin.module"() ({{
  "gpu.module"() <{{sym_name = "m"}}> ({{
    "gpu.func"() <{{function_type = {types} -> ()}}> ({{
    ^bb0({arguments}):
      %d = "vector.contract"(%a, %b, %c) <{{indexing_maps = [#map, affine_map<{_MAPS[1]}>, affine_map<{_RESULT}>], iterator_types = [], kind = #vector.kind<add>}}> : {types} -> {made} loc("a.mlir":3:4)
      "gpu.return"() : () -> ()
    }}) {{gpu.kernel, sym_name = "k"}} : () -> ()
  }}) : () -> ()
}}) : () -> ()
"""
    options = SplitOptions(
        source_text="", unit_id="a.mlir", llvm_major=22, targets=(parse_offload_arch(arch),)
    )
    found = split_program(text, options).warnings
    return tuple(f"{one.location}: {one.message}" for one in found)


@pytest.mark.parametrize(
    ("sizes", "count"), [((1, 16, 16, 128), 32768), ((2, 32, 64, 128), 524288)]
)
def test_a_large_product_is_a_warning_where_it_is(
    sizes: tuple[int, int, int, int], count: int
) -> None:
    (found,) = warnings_of(*sizes, "host")
    assert found.startswith(f"a.mlir:3:4: vector.contract is unrolled to {count} multiplications")


@pytest.mark.parametrize(
    ("sizes", "arch"),
    [((32, 8, 8, 8), "host"), ((1, 16, 16, 64), "host"), ((1, 32, 64, 128), "sm_90")],
)
def test_others_are_compiled_silently(sizes: tuple[int, int, int, int], arch: str) -> None:
    assert warnings_of(*sizes, arch) == ()
