"""Operations of host code that upstream passes or the back end compute wrongly, executed, against exact numbers."""

from __future__ import annotations

import ctypes
import math
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

LEAST, MOST = -(2**63), 2**63 - 1
EDGES = (0, 1, -1, 2, -7, 2**31, -(2**31), MOST, LEAST, LEAST + 1)
CODES = {"f16": "e", "f32": "f", "f64": "d"}
WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def bits(kind: str, value: float) -> int:
    """Return the bits of a number as a signed integer, extended with zeros; bf16 must hold the number exactly."""
    if kind == "bf16":
        return bits("f32", value) >> 16
    packed = struct.pack(f"<{CODES[kind]}", value)
    return int.from_bytes(packed, "little", signed=len(packed) == 8)


def number(kind: str, name: str, of: str) -> str:
    """Return code that makes a number of the bits in an i64."""
    if kind == "f64":
        return f"%{name} = arith.bitcast %{of} : i64 to f64\n"
    width = f"i{WIDTHS[kind]}"
    cast = f"%{name} = arith.bitcast %{name}w : {width} to {kind}\n"
    return f"%{name}w = arith.trunci %{of} : i64 to {width}\n{cast}"


def result(kind: str) -> str:
    """Return code that makes an i64 of the bits of %m."""
    if kind == "f64":
        return "%r = arith.bitcast %m : f64 to i64\n"
    width = f"i{WIDTHS[kind]}"
    return f"%v = arith.bitcast %m : {kind} to {width}\n%r = arith.extui %v : {width} to i64\n"


class Case(NamedTuple):
    """A function of two i64, and its result for each pair of arguments."""

    body: str
    rows: dict[tuple[int, int], int]
    needs_bfloat: bool = False


def extremum(name: str, kind: str) -> Case:
    def exact(a: float, b: float) -> float:
        ordered = sorted((a, b), key=lambda one: (one, math.copysign(1, one)))
        return ordered[1 if name == "maximumf" else 0]

    pairs = ((0.0, -0.0), (-0.0, 0.0), (0.0, 0.0), (-0.0, -0.0), (1.0, 2.0), (2.0, -1.0))
    body = number(kind, "a", "x") + number(kind, "b", "y")
    body += f"%m = arith.{name} %a, %b : {kind}\n{result(kind)}"
    rows = {(bits(kind, a), bits(kind, b)): bits(kind, exact(a, b)) for a, b in pairs}
    return Case(body, rows, kind == "bf16")


def wide_extremum(name: str, kind: str) -> Case:
    back = f"%m = arith.truncf %w : {kind} to f64\n{result('f64')}"
    wide = "".join(f"%{one}l = arith.extf %{one} : f64 to {kind}\n" for one in "ab")
    body = number("f64", "a", "x") + number("f64", "b", "y")
    body += f"{wide}%w = arith.{name} %al, %bl : {kind}\n{back}"
    return Case(body, extremum(name, "f64").rows)


def division(name: str) -> Case:
    def exact(a: int, b: int) -> int:
        if name == "ceildivui":
            found = -(-(a % 2**64) // (b % 2**64))
            return found - 2**64 if found > MOST else found
        return a // b if name == "floordivsi" else -(-a // b)

    body = f"%r = arith.{name} %x, %y : i64\n"
    pairs = ((a, b) for a in EDGES for b in EDGES if b and (a, b) != (LEAST, -1))
    return Case(body, {(a, b): exact(a, b) for a, b in pairs})


def truncation(mode: str, kind: str, numbers: dict[float, float]) -> Case:
    body = f"{number('f64', 'a', 'x')}%m = arith.truncf %a {mode} : f64 to {kind}\n{result(kind)}"
    rows = {(bits("f64", x), 0): bits(kind, to) for x, to in numbers.items()}
    return Case(body, rows, kind == "bf16")


def from_integer(name: str, width: int, numbers: dict[int, float]) -> Case:
    narrow = f"%a = arith.trunci %x : i64 to i{width}\n" if width < 64 else ""
    body = (
        f"{narrow}%m = arith.{name} {'%a' if narrow else '%x'} : i{width} to bf16\n{result('bf16')}"
    )
    return Case(body, {(x, 0): bits("bf16", to) for x, to in numbers.items()}, needs_bfloat=True)


def fused(kind: str, *numbers: tuple[float, float, float, float]) -> Case:
    third, exact = numbers[0][2], {(a, b): to for a, b, _, to in numbers}
    body = number(kind, "a", "x") + number(kind, "b", "y")
    body += (
        f"%c = arith.constant {third!r} : {kind}\n%m = math.fma %a, %b, %c : {kind}\n{result(kind)}"
    )
    rows = {(bits(kind, a), bits(kind, b)): bits(kind, to) for (a, b), to in exact.items()}
    return Case(body, rows, kind == "bf16")


def around(low: float, high: float, mode: str) -> dict[float, float]:
    """Return numbers between neighbors, of both signs, and what they are rounded to."""
    inside = low + (high - low) * 0.75 if mode != "upward" else low + (high - low) * 0.25
    positive = high if mode == "upward" else low
    negative = -high if mode == "downward" else -low
    return {inside: positive, -inside: negative, low: low, -high: -high}


# Neighbors in each format.
NEIGHBORS = {"f32": (1.0, 1 + 2.0**-23), "f16": (1.0, 1 + 2.0**-10), "bf16": (1.0, 1 + 2.0**-7)}
# A midpoint of bf16, and more that f32 cannot hold.
MIDDLE = (1 << 62) + (1 << 54)
CASES = {
    **{f"{name}_{kind}": extremum(name, kind) for name in ("maximumf", "minimumf") for kind in WIDTHS},
    **{
        f"{name}_{kind}": wide_extremum(name, kind)
        for name in ("maximumf", "minimumf")
        for kind in ("f80", "f128")
    },
    **{name: division(name) for name in ("ceildivsi", "floordivsi", "ceildivui")},
    **{
        f"{mode}_{kind}": truncation(mode, kind, around(*pair, mode))
        for mode in ("upward", "downward", "toward_zero")
        for kind, pair in NEIGHBORS.items()
    },
    "nearest_bf16": truncation("", "bf16", {1 + 2.0**-8 + 2.0**-40: 1 + 2.0**-7, 1 + 2.0**-8: 1.0}),
    "even_bf16": truncation("to_nearest_even", "bf16", {1 + 2.0**-8 + 2.0**-40: 1 + 2.0**-7}),
    "sitofp_i1": from_integer("sitofp", 1, {1: -1.0, 0: 0.0}),
    "uitofp_i1": from_integer("uitofp", 1, {1: 1.0, 0: 0.0}),
    **{
        f"{name}_{width}": from_integer(name, width, {0x1010001: 0x1020000, 3: 3.0})
        for name in ("sitofp", "uitofp")
        for width in (32, 64)
    },
    "sitofp_negative": from_integer("sitofp", 64, {-MIDDLE - 1: -(2.0**62 + 2.0**55), -MIDDLE: -(2.0**62), LEAST: -(2.0**63)}),
    "uitofp_large": from_integer("uitofp", 64, {LEAST + (1 << 55) + 1: 2.0**63 + 2.0**56, -1: 2.0**64}),
    "fma_bf16": fused("bf16", (17.0, 19.0, -(2.0**-30), 322.0), (3.0, 5.0, -(2.0**-30), 15.0)),
    "fma_f16": fused("f16", (6.0, 683.0, 2.0**-24, 4100.0), (3.0, 5.0, 2.0**-24, 15.0)),
}  # fmt: skip


def load(driver: list[str], folder: Path, release: int, cases: dict[str, Case]) -> ctypes.CDLL:
    source, library = folder / "host.mlir", folder / "libhost.so"
    source.write_text(
        "".join(
            f"func.func @{name}(%x: i64, %y: i64) -> i64 {{\n{case.body}return %r : i64\n}}\n"
            for name, case in cases.items()
        )
    )
    flags = (f"--llvm={release}", "--offload-arch=host", "-shared", "-fPIC", "-O2")
    subprocess.run([*driver, *flags, source, "-o", library], check=True)
    return ctypes.CDLL(str(library))


def function(library: ctypes.CDLL, name: str) -> Callable[[int, int], int]:
    found = library[name]
    found.argtypes, found.restype = (ctypes.c_int64, ctypes.c_int64), ctypes.c_int64
    return found


@pytest.mark.parametrize(
    "release", [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
)
def test_host_code_has_the_exact_results(
    mlir_offload: list[str], tmp_path: Path, release: int
) -> None:
    # The functions that round to bf16 are in libraries that LLVM 19 may lack.
    cases = {name: case for name, case in CASES.items() if release != 19 or not case.needs_bfloat}
    library = load(mlir_offload, tmp_path, release, cases)
    wrong = {
        (name, row): (found, right)
        for name, case in cases.items()
        for row, right in case.rows.items()
        for found in (function(library, name)(*row),)
        if found != right
    }
    assert wrong == {}


@pytest.mark.llvm(22)
def test_a_rounding_mode_without_exact_code_is_refused(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "away.mlir"
    source.write_text(
        "func.func @f(%x: f64) -> f32 {\n"
        "  %r = arith.truncf %x to_nearest_away : f64 to f32\n  return %r : f32\n}\n"
    )
    flags = ("--offload-arch=host", "-c", "-o", tmp_path / "away.o")
    done = subprocess.run(
        [*mlir_offload, *flags, source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "away.mlir:2:" in done.stderr
    assert "arith.truncf to f32 with this rounding mode is not supported" in done.stderr
    assert "hint: leave out the mode" in done.stderr
