"""Products and sums that may be fused are one operation for AMD GPUs."""

from __future__ import annotations

import pytest

from mlir_offload.translate.fused_product import fuse_products
from mlir_offload.translate.mlir.module import parse_module
from mlir_offload.translate.mlir.operation import Operation

MODULE = """
"builtin.module"() ({
  "llvm.func"() <{function_type = !llvm.func<void (f32, f32, f32)>, sym_name = "k"}> ({
  ^bb0(%a: f32, %b: f32, %c: f32):
    %p = "llvm.fmul"(%a, %b) <{fastmathFlags = #llvm.fastmath<contract>}> : (f32, f32) -> f32
    %q = "llvm.fmul"(%b, %c) <{fastmathFlags = #llvm.fastmath<nnan, contract>}> : (f32, f32) -> f32
    %s = "llvm.fadd"(%c, %p) <{fastmathFlags = #llvm.fastmath<nnan, contract>}> : (f32, f32) -> f32
    %t = "llvm.fadd"(%q, %s) <{fastmathFlags = #llvm.fastmath<nnan, contract>}> : (f32, f32) -> f32
    "test.use"(%t) : (f32) -> ()
    "llvm.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""
S = 'llvm.fadd"(%c, %p) <{fastmathFlags = #llvm.fastmath<nnan, contract>}>'
P = 'llvm.fmul"(%a, %b) <{fastmathFlags = #llvm.fastmath<contract>}>'
NEXT = """
    "llvm.br"()[^bb1] : () -> ()
  ^bb1:
    %t ="""


def fused(*changes: tuple[str, str]) -> list[Operation]:
    text = MODULE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    module = parse_module(text)
    fuse_products(module.operations)
    (function,) = parse_module(module.render()).operations
    return [one for one in function.walk_inside() if one.name.startswith("llvm.")][:-1]


def test_a_product_and_a_sum_become_one_operation() -> None:
    first, second = fused()
    assert first.name == second.name == "llvm.intr.fmuladd"
    assert first.operand_names == ["%a", "%b", "%c"]
    assert second.operand_names == ["%b", "%c", first.result_text]


def test_a_fused_operation_has_the_flags_that_both_have() -> None:
    flags = [one.attribute("fastmathFlags").body for one in fused()]
    assert flags == ["contract", "nnan, contract"]
    changes = [(S, S.replace("nnan, contract", "fast"))]
    assert fused(*changes)[0].attribute("fastmathFlags").body == "contract"
    changes = [(P, P.replace("contract", "fast"))]
    assert fused(*changes)[0].attribute("fastmathFlags").body == "nnan, contract"


@pytest.mark.parametrize(
    "changes",
    [
        [(P, P.replace("contract", "none"))],
        [(S, S.replace("nnan, contract", "nnan"))],
        [('"test.use"(%t)', '"test.use"(%p)')],
        [("(%c, %p)", "(%p, %p)")],
        [("f32", "bf16")],
        [("%s =", NEXT.replace("%t", "%s")), ("(%q, %s)", "(%q, %c)")],
    ],
    ids=["product", "sum", "used twice", "twice in the sum", "narrow", "another block"],
)
def test_other_products_stay(changes: list[tuple[str, str]]) -> None:
    assert "%p" in [one.result_text for one in fused(*changes)]
