"""Contraction of products and sums in device code."""

from __future__ import annotations

import pytest

from mlir_offload.driver.option.command_line import parse_arguments
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.translate.fast_math import set_contraction
from mlir_offload.translate.kind_lowering import Contraction
from mlir_offload.translate.mlir.operation import Operation


def flags_after(name: str, flags: str, contraction: Contraction) -> str:
    head = f" <{{fastmathFlags = #llvm.fastmath<{flags}>}}> : (f32, f32) -> f32"
    operation = Operation(name, "%2", "%0, %1", head)
    set_contraction([operation], contraction)
    return operation.attribute("fastmathFlags").body


@pytest.mark.parametrize(
    ("name", "flags", "contraction", "expected"),
    [
        ("llvm.fmul", "none", Contraction.FAST, "contract"),
        ("llvm.fadd", "nnan, ninf", Contraction.FAST, "nnan, ninf, contract"),
        ("llvm.fsub", "fast", Contraction.FAST, "fast"),
        ("llvm.fdiv", "none", Contraction.FAST, "none"),
        ("llvm.fmul", "contract", Contraction.ON, "contract"),
        ("llvm.fmul", "none", Contraction.ON, "none"),
        ("llvm.fmul", "contract", Contraction.OFF, "none"),
        ("llvm.fadd", "reassoc, contract", Contraction.OFF, "reassoc"),
        ("llvm.fadd", "fast", Contraction.OFF, "nnan, ninf, nsz, arcp, afn, reassoc"),
    ],
)
def test_flags_of_an_operation_follow_the_contraction(
    name: str, flags: str, contraction: Contraction, expected: str
) -> None:
    assert flags_after(name, flags, contraction) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("off", Contraction.OFF),
        ("fast", Contraction.FAST),
        ("fast-honor-pragmas", Contraction.FAST),
    ],
)
def test_the_option_is_for_device_code_and_for_clang(value: str, expected: Contraction) -> None:
    options = parse_arguments([f"-ffp-contract={value}", "a.mlir"])
    assert options.device_flags.contraction == expected
    assert options.code_arguments == (f"-ffp-contract={value}",)


def test_another_value_is_refused() -> None:
    with pytest.raises(UsageError, match="not off, on or fast"):
        parse_arguments(["-ffp-contract=always", "a.mlir"])
