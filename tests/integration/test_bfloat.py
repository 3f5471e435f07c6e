"""Operations on bf16 against rational numbers, on the CPU and emulated GPUs, and on every processor the same code."""

from __future__ import annotations

import math
import random
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from support.amd_emulator import AmdGpu
from support.binary_format import BF16, F16, F32, Format
from support.cuda_emulator import CudaEmulator
from support.row_program import RowProgram

COUNT = 512
WITHOUT_LIBRARY = (
    "from mlir_offload.toolchain import llvm\n"
    "llvm.find_llvm_library = lambda *_: None\n"
    "from mlir_offload.driver.__main__ import main\n"
    "raise SystemExit(main())\n"
)


class Row(NamedTuple):
    """The operands of one thread: two numbers of bf16, one of f32, one of f64, and an integer."""

    a: float
    b: float
    single: float
    double: float
    integer: int


def of_bits(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def bits_of(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16


def nearest(value: float | Fraction, zero: float = 0.0) -> float:
    """Return the nearest number of bf16."""
    if isinstance(value, float) and (value == 0 or not math.isfinite(value)):
        return value
    return BF16.rounded(Fraction(value), "rn", zero)


def exactly(operation: str, a: float, b: float) -> float:
    """Return an operation on two numbers, rounded once."""
    if not (math.isfinite(a) and math.isfinite(b)) or (operation == "div" and b == 0):
        if operation == "div" and b == 0:
            sign = math.copysign(1, a) * math.copysign(1, b)
            return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, sign)
        found = {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b if b else math.nan}
        return found[operation]
    x, y = Fraction(a), Fraction(b)
    if operation in ("mul", "div"):
        zero = math.copysign(0.0, math.copysign(1, a) * math.copysign(1, b))
        return nearest(x * y if operation == "mul" else x / y, zero)
    other = b if operation == "add" else -b
    total = x + Fraction(other)
    if total == 0:
        return a + other
    return nearest(total)


def root(a: float) -> float:
    if a < 0 or math.isnan(a):
        return math.nan
    if a in (0, math.inf):
        return a
    scale = Fraction(2) ** 300
    exact = Fraction(math.isqrt(int(Fraction(a) * scale * scale))) / scale
    return nearest(exact + (exact * exact != Fraction(a)) / (2 * scale))


def remainder(a: float, b: float) -> float:
    return math.nan if b == 0 or math.isinf(a) else math.fmod(a, b)


def extreme(a: float, b: float, *, greatest: bool, keeps_nan: bool) -> float:
    """Return the greater or the less of two numbers; -0 is less than +0."""
    if math.isnan(a) or math.isnan(b):
        return math.nan if keeps_nan else b if math.isnan(a) else a
    key = lambda x: (x, math.copysign(1, x))  # noqa: E731
    return max(a, b, key=key) if greatest else min(a, b, key=key)


def signed(value: int, bits: int) -> int:
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def both(operation: str, row: Row) -> float:
    return exactly(operation, row.a, row.b)


def of_integer(letter: str, bits: int, row: Row) -> float:
    number = row.integer % (1 << bits)
    return nearest(Fraction(signed(number, bits) if letter == "s" else number))


def added(row: Row, *others: float) -> float:
    """Return the sum of the first operand and others, rounded after each step."""
    total = row.a
    for other in others:
        total = exactly("add", total, other)
    return total


def directed(formats: Sequence[Format], mode: str, row: Row) -> float:
    """Return the number of f64 or f32, rounded in a direction to each format in turn."""
    value = row.single if formats[0] is not F32 else row.double
    for form in formats:
        if value and math.isfinite(value):
            zero = math.copysign(0.0, value)
            value = form.rounded(Fraction(value), mode, zero)
    return value


Oracle = Callable[[Row], float]
OPERATIONS: dict[str, tuple[str, Oracle]] = {
    **{
        name: (f"%r = arith.{name}f %a, %b : bf16", partial(both, name))
        for name in ("add", "sub", "mul", "div")
    },
    "rem": ("%r = arith.remf %a, %b : bf16", lambda row: remainder(row.a, row.b)),
    "neg": ("%r = arith.negf %a : bf16", lambda row: -row.a),
    "abs": ("%r = math.absf %a : bf16", lambda row: abs(row.a)),
    "sqrt": ("%r = math.sqrt %a : bf16", lambda row: root(row.a)),
    "sign": ("%r = math.copysign %a, %b : bf16", lambda row: math.copysign(row.a, row.b)),
    "floor": (
        "%r = math.floor %a : bf16",
        lambda row: float(math.floor(row.a)) if math.isfinite(row.a) and row.a else row.a,
    ),
    "max": (
        "%r = arith.maximumf %a, %b : bf16",
        lambda row: extreme(row.a, row.b, greatest=True, keeps_nan=True),
    ),
    "min": (
        "%r = arith.minimumf %a, %b : bf16",
        lambda row: extreme(row.a, row.b, greatest=False, keeps_nan=True),
    ),
    "least": (
        "%c = arith.cmpf olt, %a, %b : bf16\n    %r = arith.select %c, %a, %b : bf16",
        lambda row: min(row.b, row.a),
    ),
    "single": ("%r = arith.truncf %f : f32 to bf16", lambda row: nearest(row.single)),
    "double": ("%r = arith.truncf %d : f64 to bf16", lambda row: nearest(row.double)),
    **{
        name: (
            f"%r = arith.truncf %f {name} : f32 to bf16",
            partial(directed, (BF16,), mode),
        )
        for name, mode in (("downward", "rm"), ("upward", "rp"), ("toward_zero", "rz"))
    },
    "twice": (
        "%h = arith.truncf %d upward : f64 to f32\n    %r = arith.truncf %h upward : f32 to bf16",
        partial(directed, (F32, BF16), "rp"),
    ),
    "half": (
        ("%h = arith.truncf %f downward : f32 to f16\n    %w = arith.extf %h : f16 to f32\n"
        "    %r = arith.truncf %w downward : f32 to bf16"),
        partial(directed, (F16, BF16), "rm"),
    ),
    "wide": (
        ("%w = arith.extf %a : bf16 to f64\n    %h = arith.constant 0.5 : f64\n"
        "    %p = arith.mulf %w, %h : f64\n    %r = arith.truncf %p : f64 to bf16"),
        lambda row: nearest(row.a * 0.5),
    ),
    **{
        f"{letter}itofp{bits}": (
            (f"%t = arith.trunci %i : i64 to i{bits}\n    " if bits < 64 else "")
            + f"%r = arith.{letter}itofp {'%t' if bits < 64 else '%i'} : i{bits} to bf16",
            partial(of_integer, letter, bits),
        )
        for letter in "su"
        for bits in (1, 8, 16, 32, 64)
    },
    "vector": (
        ("%va = vector.broadcast %a : bf16 to vector<4xbf16>\n"
        "    %vb = vector.insert %b, %va[2] : bf16 into vector<4xbf16>\n"
        "    %vs = arith.addf %va, %vb : vector<4xbf16>\n    %vn = arith.negf %vs : vector<4xbf16>\n"
        "    %r = vector.extract %vn[2] : bf16 from vector<4xbf16>"),
        lambda row: -exactly("add", row.a, row.b),
    ),
    "reduction": (
        ("%va = vector.broadcast %a : bf16 to vector<3xbf16>\n"
        "    %vb = vector.insert %b, %va[1] : bf16 into vector<3xbf16>\n"
        "    %r = vector.reduction <add>, %vb, %a : vector<3xbf16> into bf16"),
        lambda row: added(row, row.a, row.b, row.a),
    ),
    "sum": (
        "%s = arith.addf %a, %a : bf16\n    %t = arith.addf %s, %b : bf16\n    %r = arith.addf %t, %a : bf16",
        lambda row: added(row, row.a, row.b, row.a),
    ),
    "loop": (
        ("%r = scf.for %k = %c0 to %c3 step %c1 iter_args(%s = %a) -> bf16 {\n"
        "      %n = arith.addf %s, %b : bf16\n      scf.yield %n : bf16\n    }"),
        lambda row: added(row, row.b, row.b, row.b),
    ),
    "atomic": (
        ("memref.store %a, %cell[%apart] : CELLS\n"
        "    %old = memref.atomic_rmw addf %b, %cell[%apart] : (bf16, CELLS) -> bf16\n"
        "    %r = memref.load %cell[%apart] : CELLS"),
        lambda row: exactly("add", row.a, row.b),
    ),
}  # fmt: skip


def rows() -> list[Row]:
    chosen = random.Random(3)  # noqa: S311 (not for secrets)
    edges = [
        0,
        0x8000,
        1,
        0x8001,
        0x7F,
        0x80,
        0x3F80,
        0xBF80,
        0x3F81,
        0x7F7F,
        0xFF7F,
        0x7F80,
        0xFF80,
        0x7FC0,
    ]
    pairs = [(a, b) for a in edges for b in edges]
    pairs += [
        (chosen.randrange(1 << 16), chosen.choice((0, 0x3F80)) + chosen.randrange(1 << 15))
        for _ in range(COUNT - len(pairs))
    ]
    made = []
    for number, (a, b) in enumerate(pairs):
        tie = of_bits(a) * (1 + chosen.choice((0, 1, -1)) * 2.0**-8)
        low = chosen.choice((0, 0x7FFF, 0x8000, 0x8001))
        (single,) = struct.unpack("<f", struct.pack("<I", a << 16 | low))
        double = tie + chosen.choice((0.0, 1.0, -1.0)) * tie * 2.0**-40
        if number % 8 == 0:
            # Beyond the range of f32.
            double = (
                (1.0 + number) * chosen.choice((1, -1)) * 2.0 ** chosen.choice((-1040, -151, 150))
            )
        width = number % 63 + 1
        integer = chosen.choice((1, -1)) * (
            (1 << width) + (1 << max(width - 8, 0)) + chosen.choice((0, 1, -1))
        )
        made.append(Row(of_bits(a), of_bits(b), single, double, signed(integer, 64)))
    return made


def program(*left_out: str) -> RowProgram:
    a, b, *others = zip(*rows(), strict=True)
    kinds = {"a": "bf16", "b": "bf16", "f": "f32", "d": "f64", "i": "i64"}
    texts = {name: text for name, (text, _) in OPERATIONS.items() if name not in left_out}
    return RowProgram(kinds, ([*map(bits_of, a)], [*map(bits_of, b)], *others), texts, "bf16")


def check(results: Mapping[str, Sequence[float]]) -> None:
    wrong = {}
    for name, found in results.items():
        for row, bits in zip(rows(), map(int, found), strict=True):
            wanted = OPERATIONS[name][1](row)
            is_same = math.isnan(of_bits(bits)) if math.isnan(wanted) else bits == bits_of(wanted)
            if not is_same:
                wrong[name] = (row, hex(bits), hex(bits_of(wanted)))
    assert wrong == {}


RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
OPTIONS = [("-O0",), ("-O2", "-march=native"), ("-march=x86-64",)]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_on_the_cpu_results_are_exact(
    mlir_offload: list[str], tmp_path: Path, release: int, options: Sequence[str]
) -> None:
    flags = (f"--llvm={release}", "--offload-arch=host", *options)
    check(program().run(mlir_offload, tmp_path, *flags))


@pytest.mark.llvm(22)
def test_without_libllvm_they_are_the_same(tmp_path: Path) -> None:
    compiler = [sys.executable, "-c", WITHOUT_LIBRARY]
    check(program().run(compiler, tmp_path, "--llvm=22", "--offload-arch=host"))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_on_nvidia_gpus_results_are_exact(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, arch: str, release: int
) -> None:
    flags = (f"--llvm={release}", f"--offload-arch={arch}")
    check(program().run_on_cuda(mlir_offload, cuda_emulator, tmp_path, *flags))


@pytest.mark.llvm(22)
@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
def test_on_amd_gpus_results_are_exact(amd: AmdGpu, tmp_path: Path, arch: str) -> None:
    # The device libraries of Debian have no remainder for gfx1100.
    check(program("rem").run_on_amd(amd, tmp_path, arch))


@pytest.mark.llvm(22)
def test_on_an_opencl_device_results_are_exact(mlir_offload: list[str], tmp_path: Path) -> None:
    # OpenCL has no atomic operations on 16 bits.
    chosen = program("atomic")
    check(chosen.run(mlir_offload, tmp_path, "--offload-arch=spirv64", opencl=True))
