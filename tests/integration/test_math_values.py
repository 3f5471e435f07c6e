"""Operations of the math dialect in kernels, against Python's functions: on the CPU, emulated GPUs and an OpenCL device."""

from __future__ import annotations

import math
import os
import struct
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.amd_emulator import AmdGpu
from support.cuda_emulator import CudaEmulator, run_program
from support.opencl import opencl_environment

# Signed zeros, tiny and small numbers, for which exp(x) - 1 and log(1 + x) have no correct digit, and others.
VALUES = (0.0, -0.0, 1e-30, -1e-10, 0.001, 0.3, -0.75, 1.0, -1.0, 2.5, -3.0, 9.0, math.nan)
EXPONENTS = (0, 1, -1, 2, 3, -3, 5, -5, 100, 127, -128, 32767, -32768, (1 << 31) - 1, -(1 << 31), (1 << 32) + 1, -(1 << 40) - 3)  # fmt: skip
PAIRS = [(value, number) for value in VALUES for number in EXPONENTS]
# Units in the last place of f32; OpenCL allows 16 for pow, CUDA 8 for powf.
MOST_ULP = 8.0
_POLES = {"log": 0.0, "log1p": -1.0}
Expected = Callable[[float, int], float]


def power(base: float, number: int) -> float:
    """Return base ** number; infinity if it is too large."""
    if base == 0 and number < 0:
        return math.copysign(math.inf, base) if number % 2 else math.inf
    if math.isnan(base):
        return base if number else 1.0
    # The logarithm of numbers that overflow also in f64.
    if base and abs(number * math.log(abs(base))) > 600:
        size = math.inf if (abs(base) > 1) == (number > 0) else 0.0
        return math.copysign(size, base) if number % 2 else size
    return math.pow(base, number)


def _cut(number: int, bits: int) -> int:
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _function(name: str, value: float, _: int) -> float:
    """Return the result of a function of Python's math, which raises where C's has a pole or NaN."""
    try:
        return float(getattr(math, name)(value))
    except ValueError:
        return -math.inf if value == _POLES.get(name) else math.nan


def _cut_power(bits: int, value: float, number: int) -> float:
    return power(value, _cut(number, bits))


def _constant_power(number: int, value: float, _: int) -> float:
    return power(value, number)


# Each body defines %r: f32 of %x: f32 and %n: i64.
UNARY = ("atan", "cosh", "sinh", "tan", "tanh", "expm1", "log1p", "sin", "cos", "exp", "log", "erf")
LATER = ("acos", "asin", "acosh", "asinh")  # not lowered by LLVM 19 for NVIDIA GPUs
BODIES: dict[str, tuple[str, Expected]] = {
    name: (f"%r = math.{name} %x : f32", partial(_function, name)) for name in (*UNARY, *LATER)
}
BODIES |= {
    "sin of f16": (
        "%h = arith.truncf %x : f32 to f16\n%s = math.sin %h : f16\n%r = arith.extf %s : f16 to f32",
        lambda value, _: _half(math.sin(_half(value))),
    ),
    "sine of complex f16": (
        """%h = arith.truncf %x : f32 to f16
%zero = arith.constant 0.0 : f16
%z = complex.create %h, %zero : complex<f16>
%sine = complex.sin %z : complex<f16>
%re = complex.re %sine : complex<f16>
%r = arith.extf %re : f16 to f32""",
        lambda value, _: _half(math.sin(_half(value))),
    ),
    "sincos": (
        "%s, %c = math.sincos %x : f32\n%r = arith.subf %s, %c : f32",
        lambda value, _: math.sin(value) - math.cos(value),
    ),
    "clampf": (
        """%low = arith.constant -0.5 : f32
%high = arith.constant 2.0 : f32
%r = math.clampf %x to [%low, %high] : f32""",
        lambda value, _: value if math.isnan(value) else min(max(value, -0.5), 2.0),
    ),
    **{
        f"fpowi of i{bits}": (
            f"%e = arith.trunci %n : i64 to i{bits}\n%r = math.fpowi %x, %e : f32, i{bits}",
            partial(_cut_power, bits),
        )
        for bits in (8, 16, 32)
    },
    "fpowi of i64": ("%r = math.fpowi %x, %n : f32, i64", power),
    **{
        f"fpowi with {number}": (
            f"%e = arith.constant {number} : i32\n%r = math.fpowi %x, %e : f32, i32",
            partial(_constant_power, number),
        )
        for number in (0, 1, 3, 4, -1, -3, 7)
    },
}
SINCE_22 = frozenset({*LATER, "sincos", "clampf"})


def _half(value: float) -> float:
    return float(struct.unpack("<e", struct.pack("<e", value))[0])


def _single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def names_of(release: int) -> list[str]:
    return [name for name in BODIES if release == 22 or name not in SINCE_22]


def program_of(names: list[str]) -> str:
    size = len(PAIRS)
    real, whole, made = (
        f"memref<{size}xf32>",
        f"memref<{size}xi64>",
        f"memref<{len(names)}x{size}xf32>",
    )
    lines = [
        "module attributes {gpu.container_module} {\ngpu.module @m {",
        *(
            f"gpu.func @k{place}(%in: {real}, %exponents: {whole}, %out: {made}) kernel {{\n"
            f"%i = gpu.block_id x\n%place = arith.constant {place} : index\n"
            f"%x = memref.load %in[%i] : {real}\n%n = memref.load %exponents[%i] : {whole}\n"
            f"{BODIES[name][0]}\nmemref.store %r, %out[%place, %i] : {made}\ngpu.return\n}}"
            for place, name in enumerate(names)
        ),
        "}",
        f"func.func @run(%x: {real}, %n: {whole}, %r: {made}) attributes {{llvm.emit_c_interface}} {{",
        f"%c1 = arith.constant 1 : index\n%size = arith.constant {size} : index",
        *(
            f"%d{name} = gpu.alloc () : {kind}"
            for name, kind in (("x", real), ("n", whole), ("r", made))
        ),
        *(f"gpu.memcpy %d{name}, %{name} : {kind}, {kind}" for name, kind in (("x", real), ("n", whole))),
        *(
            f"gpu.launch_func @m::@k{place} blocks in (%size, %c1, %c1) threads in (%c1, %c1, %c1) "
            f"args(%dx : {real}, %dn : {whole}, %dr : {made})"
            for place in range(len(names))
        ),
        f"gpu.memcpy %r, %dr : {made}, {made}\nreturn\n}}\n}}\n",
    ]  # fmt: skip
    return "\n".join(lines)


CALLER = """\
#include <stdint.h>
#include <stdio.h>
typedef struct { void *base, *data; int64_t offset, sizes[2], strides[2]; } M;
void _mlir_ciface_run(M *, M *, M *);
static float x[SIZE], r[COUNT * SIZE];
static int64_t n[SIZE];
int main(int argc, char **argv) {
  FILE *file = fopen(argv[1], "rb");
  if (!file || fread(x, sizeof x, 1, file) != 1 || fread(n, sizeof n, 1, file) != 1) return 1;
  M from = {x, x, 0, {SIZE, 1}, {1}}, exponents = {n, n, 0, {SIZE, 1}, {1}};
  M to = {r, r, 0, {COUNT, SIZE}, {SIZE, 1}};
  _mlir_ciface_run(&from, &exponents, &to);
  file = fopen(argv[2], "wb");
  return fwrite(r, sizeof r, 1, file) != 1 || fclose(file);
}
"""


def write_program(folder: Path, names: list[str]) -> tuple[Path, Path]:
    source, caller = folder / "math.mlir", folder / "caller.c"
    source.write_text(program_of(names))
    sizes = {"SIZE": str(len(PAIRS)), "COUNT": str(len(names))}
    caller.write_text("".join(f"#define {one} {size}\n" for one, size in sizes.items()) + CALLER)
    values, exponents = zip(*PAIRS, strict=True)
    given = struct.pack(f"<{len(PAIRS)}f", *values) + struct.pack(f"<{len(PAIRS)}q", *exponents)
    (folder / "in").write_bytes(given)
    return source, caller


def error_ulp(found: float, wanted: float) -> float:
    """Return the error in units of the last place of f32; infinite where NaN, or the sign of a power, is wrong."""
    if math.isnan(found) or math.isnan(wanted):
        return 0.0 if math.isnan(found) == math.isnan(wanted) else math.inf
    if math.isinf(found) or math.isinf(wanted):
        is_same = found == wanted or (abs(wanted) > 3.4028235e38 and found * wanted > 0)
        return 0.0 if is_same else math.inf
    unit = math.ldexp(1.0, max(math.frexp(wanted)[1], -125) - 24)
    return abs(found - wanted) / unit


def check_results(folder: Path, names: list[str], most_ulp: float = MOST_ULP) -> None:
    found = struct.unpack(f"<{len(names) * len(PAIRS)}f", (folder / "out").read_bytes())
    wrong = []
    for place, name in enumerate(names):
        _, expected = BODIES[name]
        for (given, number), value in zip(PAIRS, found[place * len(PAIRS) :], strict=False):
            wanted = expected(_single(given), number)
            # Differences of sine and cosine, and f16, have errors of another size.
            allowed = {"sin of f16": 2.0**13, "sine of complex f16": 2.0**13, "sincos": 2.0**4}.get(
                name, most_ulp
            )
            if error_ulp(value, wanted) > allowed:
                wrong.append((name, given, number, value, wanted))
    assert wrong == []


RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


@pytest.mark.parametrize("release", RELEASES)
def test_on_the_cpu_math_has_few_wrong_bits(
    mlir_offload: list[str], tmp_path: Path, release: int
) -> None:
    names = names_of(release)
    flags = (f"--llvm={release}", "--offload-arch=host", "-O2", "-o", str(tmp_path / "app"))
    names = [name for name in names if release == 22 or name not in {"cosh", "sinh"}]
    subprocess.run([*mlir_offload, *flags, *write_program(tmp_path, names)], check=True)
    subprocess.run([tmp_path / "app", tmp_path / "in", tmp_path / "out"], check=True)
    check_results(tmp_path, names)


@pytest.mark.parametrize("release", RELEASES)
def test_on_nvidia_gpus_math_has_few_wrong_bits(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, release: int
) -> None:
    names = [name for name in names_of(release) if release == 22 or name not in {"cosh", "sinh"}]
    flags = (f"--llvm={release}", "--offload-arch=sm_90", "-O1", "-Xptxas", "-O0", "-o")
    options = cuda_emulator.options(is_kept=release == 19)
    words = (*mlir_offload, *flags, str(tmp_path / "app"), *options)
    subprocess.run([*words, *write_program(tmp_path, names)], check=True)
    ran = run_program(tmp_path / "app", str(tmp_path / "in"), str(tmp_path / "out"))
    assert (ran.returncode, ran.stderr) == (0, "")
    check_results(tmp_path, names)


@pytest.mark.parametrize("release", RELEASES)
def test_on_amd_gpus_math_has_few_wrong_bits(amd: AmdGpu, tmp_path: Path, release: int) -> None:
    names = names_of(release)
    amd.build(release, "gfx90a", tmp_path / "app", *write_program(tmp_path, names))
    ran = amd.run(tmp_path / "app", str(tmp_path / "in"), str(tmp_path / "out"), arch="gfx90a")
    assert (ran.returncode, ran.stderr) == (0, b"")
    check_results(tmp_path, names)


@pytest.mark.llvm(22)
def test_on_an_opencl_device_math_has_few_wrong_bits(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    found, names = opencl_environment(), names_of(22)
    words = (*mlir_offload, "--offload-arch=spirv64", "-o", str(tmp_path / "app"))
    subprocess.run([*words, *write_program(tmp_path, names)], check=True)
    run = (tmp_path / "app", tmp_path / "in", tmp_path / "out")
    subprocess.run(run, check=True, env=os.environ | found)
    check_results(tmp_path, names)
