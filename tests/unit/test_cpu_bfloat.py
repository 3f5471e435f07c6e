"""Rounding to bfloat on processors without an instruction for it, compiled by LLVM's own compiler."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from mlir_offload.translate.cpu.assemble import kept_functions
from mlir_offload.translate.cpu.bfloat import bfloat_support

CALLER = """\
#include <stdint.h>
#include <stdio.h>
#include <string.h>
uint16_t from_float(float), from_double(double);
int main(void) {
  double x;
  while (scanf("%la", &x) == 1) printf("%04x %04x\\n", from_float((float)x), from_double(x));
}
"""
IR = """\
define i16 @from_float(float %x) {
  %r = fptrunc float %x to bfloat
  %i = bitcast bfloat %r to i16
  ret i16 %i
}
define i16 @from_double(double %x) {
  %r = fptrunc double %x to bfloat
  %i = bitcast bfloat %r to i16
  ret i16 %i
}
"""


def nearest(x: float) -> int:
    """Return the bits of the nearest bfloat, the even one of two."""
    values = {n: struct.unpack("<f", struct.pack("<I", n << 16))[0] for n in range(0x7F80)}
    best = min(values, key=lambda n: (abs(values[n] - abs(x)), n & 1))
    return best | (0x8000 if x < 0 else 0)


@pytest.mark.llvm(22)
def test_numbers_are_rounded_to_the_nearest(tmp_path: Path) -> None:
    functions = bfloat_support(["bfloat"])
    lines = (IR, *functions.values(), *kept_functions(functions))
    (tmp_path / "k.ll").write_text("\n".join(lines))
    (tmp_path / "main.c").write_text(CALLER)
    clang = "/usr/lib/llvm-22/bin/clang"
    call = [clang, "-march=x86-64", "-O1", "-w", "k.ll", "main.c", "-o", "app"]
    subprocess.run(call, cwd=tmp_path, check=True)
    one = 1 + 2**-8
    numbers = (0.0, 1.0, -1.5, one, -one, one + 2**-40, one - 2**-40, 1 + 3 * 2**-8, 3.3e38, 1e-40)
    text = "".join(f"{number.hex()}\n" for number in numbers)
    done = subprocess.run(
        [tmp_path / "app"], input=text, capture_output=True, text=True, check=True
    )
    rows = [row.split() for row in done.stdout.splitlines()]
    # Rounding a double to float first would round twice; only the direct conversion is exact.
    as_float = [struct.unpack("<f", struct.pack("<f", number))[0] for number in numbers]
    assert [int(row[0], 16) for row in rows] == [nearest(number) for number in as_float]
    assert [int(row[1], 16) for row in rows] == [nearest(number) for number in numbers]


def test_other_code_has_no_such_functions() -> None:
    assert bfloat_support(["  %x = fadd float %a, %b"]) == {}
