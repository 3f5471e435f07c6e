"""8-bit floating-point values, compared with mlir-opt for every bit pattern."""

from __future__ import annotations

import math
import re
import struct
import subprocess

import pytest

from mlir_offload.offload.interface.float8 import FLOAT8, encode_float8, float8_values

# The counts of NaNs and infinities.
SPECIAL = {"f8E5M2": (6, 2), "f8E4M3": (14, 2), "f8E3M4": (30, 2), "f8E4M3FN": (2, 0)}
WIDENED = """\
func.func @{name}() -> tensor<{count}xf32> {{
  %x = arith.constant dense<"0x{bits}"> : tensor<{count}x{name}>
  %y = arith.extf %x : tensor<{count}x{name}> to tensor<{count}xf32>
  return %y : tensor<{count}xf32>
}}
"""


@pytest.mark.llvm(22)
def test_every_finite_number_is_what_mlir_takes_its_bits_for() -> None:
    finite = {
        name: bytes(bits for bits, value in enumerate(float8_values(name)) if math.isfinite(value))
        for name in FLOAT8
    }
    # mlir-opt does not fold lists that contain an infinity or a signaling NaN.
    text = "".join(
        WIDENED.format(name=name, count=len(bits), bits=bits.hex()) for name, bits in finite.items()
    )
    done = subprocess.run(
        ["/usr/lib/llvm-22/bin/mlir-opt", "--canonicalize"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    folded = re.findall(r'@(f8\w+)\(\).*?dense<"0x([0-9A-F]+)">', done.stdout, re.DOTALL)
    assert [name for name, _ in folded] == list(FLOAT8)
    for name, content in folded:
        expected = struct.unpack(f"<{len(finite[name])}f", bytes.fromhex(content))
        # As text, zeros with different signs differ.
        assert [str(float8_values(name)[bits]) for bits in finite[name]] == [*map(str, expected)]


@pytest.mark.parametrize("name", FLOAT8)
def test_the_other_patterns_are_nans_and_infinities(name: str) -> None:
    values = float8_values(name)
    counted = (sum(map(math.isnan, values)), sum(map(math.isinf, values)))
    assert counted == SPECIAL.get(name, (1, 0))


@pytest.mark.parametrize("name", FLOAT8)
def test_a_number_that_the_format_holds_comes_back(name: str) -> None:
    values = float8_values(name)
    for bits, value in enumerate(values):
        if math.isnan(value):
            assert math.isnan(values[encode_float8(name, value)])
        elif math.isfinite(value):
            assert encode_float8(name, value) == bits


@pytest.mark.parametrize(
    ("name", "number", "nearest"),
    [
        ("f8E4M3FN", 0.3, 0.3125),
        ("f8E4M3FN", 17.0, 16.0),
        ("f8E4M3FN", 19.0, 20.0),
        ("f8E4M3FN", 455.0, 448.0),
        ("f8E5M2", 1e-9, 0.0),
        ("f8E4M3FNUZ", -1e-9, 0.0),
        ("f8E8M0FNU", 3.1, 4.0),
    ],
)
def test_another_number_becomes_the_nearest_one(name: str, number: float, nearest: float) -> None:
    assert float8_values(name)[encode_float8(name, number)] == nearest


@pytest.mark.parametrize(
    ("name", "number"),
    [("f8E4M3FN", 465.0), ("f8E5M2", math.inf), ("f8E8M0FNU", 0.0), ("f8E8M0FNU", -1.0)],
)
def test_what_is_far_from_all_is_no_number_of_the_format(name: str, number: float) -> None:
    with pytest.raises(OverflowError, match=name):
        encode_float8(name, number)
