"""Parameters and arguments with types of the nvgpu dialect."""

from __future__ import annotations

import pytest

from mlir_offload.translate.legalize.device_module import use_documented_forms
from mlir_offload.translate.mlir.module import parse_operations

WORKGROUP = "#gpu.address_space<workgroup>"


def rewritten(kind: str, *lines: str) -> str:
    function = f'  "func.func"() <{{function_type = ({kind}) -> ()}}> ({{'
    text = ['"gpu.module"() ({', function, f"  ^bb0(%a: {kind}):", *lines, "  }) : () -> ()"]
    (module,) = parse_operations([*text, "}) : () -> ()"])
    use_documented_forms(module)
    return "\n".join(module.lines())


def _of(element: str, count: int) -> str:
    return f"struct<({', '.join([element] * count)})>"


@pytest.mark.parametrize(
    ("kind", "lowered"),
    [
        ("tensormap.descriptor<tensor = memref<4x8xf32, 3>, swizzle = none>", "!llvm.ptr"),
        ("mbarrier.token", "i64"),
        ("warpgroup.descriptor<tensor = memref<64x64xf16, 3>>", "i64"),
        ("device.async.token", "i32"),
        (
            "warpgroup.accumulator<fragmented = vector<128x16xf32>>",
            f"!llvm.struct<({_of('f32', 8)}, {_of('f32', 8)})>",
        ),
        (
            "warpgroup.accumulator<fragmented = vector<64x32xf16>>",
            f"!llvm.struct<({_of('f16', 8)})>",
        ),
        (f"mbarrier.group<memorySpace = {WORKGROUP}>", f"memref<1xi64, {WORKGROUP}>"),
        (
            f"mbarrier.group<memorySpace = {WORKGROUP}, num_barriers = 4>",
            f"memref<4xi64, {WORKGROUP}>",
        ),
    ],
)
def test_a_parameter_has_the_type_that_its_uses_are_lowered_to(kind: str, lowered: str) -> None:
    use = '    "test.use"(%a) {s = "!nvgpu.mbarrier.token"} : '
    text = rewritten(f"!nvgpu.{kind}", f"{use}(!nvgpu.{kind}) -> ()")
    assert f"function_type = ({lowered}) -> ()" in text
    assert f"^bb0(%a: {lowered}):" in text
    assert f"{use}({lowered}) -> ()" in text


def test_operations_that_are_lowered_later_keep_their_types() -> None:
    use = '    "nvgpu.mbarrier.inval"(%a) : (!nvgpu.mbarrier.token) -> ()'
    assert "!nvgpu.mbarrier.token) -> ()}>" in rewritten("!nvgpu.mbarrier.token", use)
