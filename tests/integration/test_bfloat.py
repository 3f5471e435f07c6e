"""Operations on bf16 against rational numbers, on the CPU and emulated GPUs, and on every processor the same code."""

from __future__ import annotations

import math
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from support.amd_emulator import AmdGpu
from support.binary_format import BF16, F16, F32, Format
from support.cuda_emulator import CudaEmulator, run_program
from support.opencl import opencl_environment

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
    "loop": (
        ("%r = scf.for %k = %c0 to %c3 step %c1 iter_args(%s = %a) -> bf16 {\n"
        "      %n = arith.addf %s, %b : bf16\n      scf.yield %n : bf16\n    }"),
        lambda row: added(row, row.b, row.b, row.b),
    ),
    "atomic": (
        ("memref.store %a, %cell[%apart] : memref<1024xbf16>\n"
        "    %old = memref.atomic_rmw addf %b, %cell[%apart] : (bf16, memref<1024xbf16>) -> bf16\n"
        "    %r = memref.load %cell[%apart] : memref<1024xbf16>"),
        lambda row: exactly("add", row.a, row.b),
    ),
}  # fmt: skip


def program(names: Sequence[str]) -> str:
    """Return a program whose results are those of the operations, one after the other, for each row."""
    size = len(names) * COUNT
    inputs = {"a": "bf16", "b": "bf16", "f": "f32", "d": "f64", "i": "i64"}
    parameters = ", ".join(f"%{name}s: memref<{COUNT}x{kind}>" for name, kind in inputs.items())
    copies = "".join(
        f"  %{name}m = gpu.alloc() : memref<{COUNT}x{kind}>\n"
        f"  gpu.memcpy %{name}m, %{name}s : memref<{COUNT}x{kind}>, memref<{COUNT}x{kind}>\n"
        for name, kind in inputs.items()
    )
    loads = "".join(
        f"    %{name} = memref.load %{name}m[%i0] : memref<{COUNT}x{kind}>\n"
        for name, kind in inputs.items()
    )
    texts = []
    for number, name in enumerate(names):
        # Each operation is in a region, because its values have the names of others.
        texts.append(
            f"    scf.execute_region {{\n    {OPERATIONS[name][0]}\n"
            f"    %at = arith.constant {number * COUNT} : index\n    %to = arith.addi %at, %i0 : index\n"
            f"    memref.store %r, %out[%to] : memref<{size}xbf16>\n    scf.yield\n    }}\n"
        )
    return f"""\
func.func @run({parameters}, %results: memref<{size}xbf16>) attributes {{llvm.emit_c_interface}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %threads = arith.constant 128 : index
  %blocks = arith.constant {COUNT // 128} : index
{copies}  %out = gpu.alloc() : memref<{size}xbf16>
  %cell = gpu.alloc() : memref<{2 * COUNT}xbf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %blocks, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {{
    %before = arith.muli %bx, %threads : index
    %i0 = arith.addi %before, %tx : index
    // GPUs without an atomic operation on 16 bits exchange 32.
    %apart = arith.addi %i0, %i0 : index
{loads}{"".join(texts)}    gpu.terminator
  }}
  gpu.memcpy %results, %out : memref<{size}xbf16>, memref<{size}xbf16>
  return
}}
"""


CALLER = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef struct { void *base, *data; int64_t offset, size, stride; } M;
void _mlir_ciface_run(M *, M *, M *, M *, M *, M *);
int main(int argc, char **argv) {
  int64_t count = atol(argv[3]), operations = atol(argv[4]), widths[] = {2, 2, 4, 8, 8, 2 * operations};
  FILE *file = fopen(argv[1], "rb");
  M m[6];
  for (int n = 0; n < 6; n++) {
    void *data = calloc(count, widths[n]);
    m[n] = (M){data, data, 0, n < 5 ? count : count * operations, 1};
    if (n < 5 && fread(data, widths[n], count, file) != count) return 1;
  }
  _mlir_ciface_run(m, m + 1, m + 2, m + 3, m + 4, m + 5);
  file = fopen(argv[2], "wb");
  return fwrite(m[5].data, 2 * operations, count, file) != count || fclose(file);
}
"""


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
        width = number % 63 + 1
        integer = chosen.choice((1, -1)) * (
            (1 << width) + (1 << max(width - 8, 0)) + chosen.choice((0, 1, -1))
        )
        made.append(Row(of_bits(a), of_bits(b), single, double, signed(integer, 64)))
    return made


def write_program(folder: Path, names: Sequence[str]) -> tuple[Path, Path]:
    source, caller = folder / "run.mlir", folder / "caller.c"
    source.write_text(program(names))
    caller.write_text(CALLER)
    a, b, singles, doubles, integers = zip(*rows(), strict=True)
    (folder / "in").write_bytes(
        struct.pack(f"<{2 * COUNT}H", *map(bits_of, (*a, *b)))
        + struct.pack(f"<{COUNT}f", *singles)
        + struct.pack(f"<{COUNT}d", *doubles)
        + struct.pack(f"<{COUNT}q", *integers)
    )
    return source, caller


def words(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    return (*(str(folder / name) for name in ("in", "out")), str(COUNT), str(len(names)))


def check_results(folder: Path, names: Sequence[str]) -> None:
    given = rows()
    found = struct.unpack(f"<{len(names) * COUNT}H", (folder / "out").read_bytes())
    wrong = []
    for place, name in enumerate(names):
        for number, row in enumerate(given):
            bits = found[place * COUNT + number]
            wanted = OPERATIONS[name][1](row)
            is_same = math.isnan(of_bits(bits)) if math.isnan(wanted) else bits == bits_of(wanted)
            if not is_same:
                wrong.append((name, row, hex(bits), hex(bits_of(wanted))))
    first = {one[0]: one for one in wrong}
    assert list(first.values()) == []


@pytest.mark.parametrize(
    "release", [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
)
@pytest.mark.parametrize(
    "options", [("-O0",), ("-O2", "-march=native"), ("-march=x86-64",)], ids=" ".join
)
def test_on_the_cpu_results_are_exact(
    mlir_offload: list[str], tmp_path: Path, release: int, options: Sequence[str]
) -> None:
    flags = (f"--llvm={release}", "--offload-arch=host", *options, "-o", str(tmp_path / "app"))
    compile_and_check(mlir_offload, flags, tmp_path)


@pytest.mark.llvm(22)
def test_without_libllvm_they_are_the_same(tmp_path: Path) -> None:
    flags = ("--llvm=22", "--offload-arch=host", "-o", str(tmp_path / "app"))
    compile_and_check([sys.executable, "-c", WITHOUT_LIBRARY], flags, tmp_path)


def compile_and_check(compiler: Sequence[str], flags: Sequence[str], folder: Path) -> None:
    names = list(OPERATIONS)
    subprocess.run([*compiler, *flags, *write_program(folder, names)], check=True)
    subprocess.run([folder / "app", *words(folder, names)], check=True)
    check_results(folder, names)


@pytest.mark.llvm(22)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_on_nvidia_gpus_results_are_exact(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, arch: str
) -> None:
    names = list(OPERATIONS)
    flags = (f"--offload-arch={arch}", *cuda_emulator.options(is_kept=False), "-o")
    source = write_program(tmp_path, names)
    subprocess.run([*mlir_offload, *flags, str(tmp_path / "app"), *source], check=True)
    ran = run_program(tmp_path / "app", *words(tmp_path, names))
    assert (ran.returncode, ran.stderr) == (0, "")
    check_results(tmp_path, names)


@pytest.mark.llvm(22)
@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
def test_on_amd_gpus_results_are_exact(amd: AmdGpu, tmp_path: Path, arch: str) -> None:
    # The device libraries of Debian have no remainder for gfx1100.
    names = [name for name in OPERATIONS if name != "rem"]
    amd.build(22, arch, tmp_path / "app", *write_program(tmp_path, names))
    ran = amd.run(tmp_path / "app", *words(tmp_path, names), arch=arch)
    assert (ran.returncode, ran.stderr) == (0, b"")
    check_results(tmp_path, names)


@pytest.mark.llvm(22)
def test_on_an_opencl_device_results_are_exact(mlir_offload: list[str], tmp_path: Path) -> None:
    # OpenCL has no atomic operations on 16 bits.
    names = [name for name in OPERATIONS if name not in {"atomic", "max", "min", "reduction"}]
    flags = ("--offload-arch=spirv64", "-o", str(tmp_path / "app"))
    subprocess.run([*mlir_offload, *flags, *write_program(tmp_path, names)], check=True)
    environment = os.environ | opencl_environment()
    subprocess.run([tmp_path / "app", *words(tmp_path, names)], check=True, env=environment)
    check_results(tmp_path, names)
