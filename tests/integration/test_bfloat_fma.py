"""math.fma of bf16, alone and in vectors, against exact arithmetic: on the CPU, emulated GPUs and an OpenCL device."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest
from support.amd_emulator import AmdGpu
from support.cuda_emulator import CudaEmulator, run_program
from support.opencl import opencl_environment

PROGRAM = """\
func.func @fma(%in: memref<3x256x2x2xbf16>, %out: memref<2x256x2x2xbf16>)
    attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %n = arith.constant 256 : index
  %zero = arith.constant 0.0 : bf16
  %from = gpu.alloc() : memref<3x256x2x2xbf16>
  %to = gpu.alloc() : memref<2x256x2x2xbf16>
  gpu.memcpy %from, %in : memref<3x256x2x2xbf16>, memref<3x256x2x2xbf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c2, %sy = %c2, %sz = %c1) {
    %a = memref.load %from[%c0, %bx, %tx, %ty] : memref<3x256x2x2xbf16>
    %b = memref.load %from[%c1, %bx, %tx, %ty] : memref<3x256x2x2xbf16>
    %c = memref.load %from[%c2, %bx, %tx, %ty] : memref<3x256x2x2xbf16>
    %r = math.fma %a, %b, %c : bf16
    memref.store %r, %to[%c0, %bx, %tx, %ty] : memref<2x256x2x2xbf16>
    %va = vector.broadcast %a : bf16 to vector<2x2xbf16>
    %vb = vector.broadcast %b : bf16 to vector<2x2xbf16>
    %vc = vector.broadcast %c : bf16 to vector<2x2xbf16>
    %vr = math.fma %va, %vb, %vc : vector<2x2xbf16>
    %last = vector.extract %vr[1, 1] : bf16 from vector<2x2xbf16>
    memref.store %last, %to[%c1, %bx, %tx, %ty] : memref<2x256x2x2xbf16>
    gpu.terminator
  }
  gpu.memcpy %out, %to : memref<2x256x2x2xbf16>, memref<2x256x2x2xbf16>
  gpu.dealloc %from : memref<3x256x2x2xbf16>
  gpu.dealloc %to : memref<2x256x2x2xbf16>
  return
}
"""
COUNT = 1024
CALLER = """\
#include <stdint.h>
#include <stdio.h>
typedef struct { void *base, *data; int64_t offset, sizes[4], strides[4]; } M;
void _mlir_ciface_fma(M *, M *);
static uint16_t in[3 * 1024], out[2 * 1024];
int main(int argc, char **argv) {
  FILE *file = fopen(argv[1], "rb");
  if (!file || fread(in, sizeof in, 1, file) != 1) return 1;
  M from = {in, in, 0, {3, 256, 2, 2}, {1024, 4, 2, 1}};
  M to = {out, out, 0, {2, 256, 2, 2}, {1024, 4, 2, 1}};
  _mlir_ciface_fma(&from, &to);
  file = fopen(argv[2], "wb");
  return fwrite(out, sizeof out, 1, file) != 1 || fclose(file);
}
"""
# The product is in the middle of two numbers, and the sum is not; products beyond the range of f32.
HARD = [
    (3.0, 87.0, 2.0**-100),
    (3.0, 87.0, -(2.0**-100)),
    (-3.0, 87.0, 2.0**-100),
    (17.0, 17.0, 2.0**-20),
    (2.0**127, 2.0, -255 * 2.0**120),
    (2.0**127, 2.0, 2.0**100),
    (-13 * 2.0**119, 59.0, 255 * 2.0**120),
    (2.0**-100, 2.0**-60, 2.0**-133),
    (2.0**-67, 2.0**-67, 2.0**-133),
    (-(2.0**-67), 2.0**-67, 2.0**-133),
    (2.0**-70, 1.5 * 2.0**-63, -(2.0**-126)),
]


def operands() -> list[tuple[float, float, float]]:
    chosen = random.Random(1)  # noqa: S311 (not for secrets)

    def number() -> float:
        digits = chosen.randrange(128, 256)
        return chosen.choice((-1.0, 1.0)) * digits * 2.0 ** chosen.choice((-133, -20, -7, 0, 5))

    return HARD + [(number(), number(), number()) for _ in range(COUNT - len(HARD))]


def bits_of(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16


def rounded(value: Fraction) -> int:
    """Return the bits of the nearest bf16, of two the even one."""
    exponent = -126
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - 7)
    # Python rounds to even.
    nearest = round(value / unit) * unit
    if abs(nearest) >= Fraction(2) ** 128:
        return 0xFF80 if value < 0 else 0x7F80
    return bits_of(float(nearest)) | (0x8000 if value < 0 else 0)


def write_program(folder: Path) -> tuple[Path, Path]:
    source, caller = folder / "fma.mlir", folder / "caller.c"
    source.write_text(PROGRAM)
    caller.write_text(CALLER)
    rows = [bits_of(value) for column in zip(*operands(), strict=True) for value in column]
    (folder / "in").write_bytes(struct.pack(f"<{3 * COUNT}H", *rows))
    return source, caller


def check_results(folder: Path) -> None:
    found = struct.unpack(f"<{2 * COUNT}H", (folder / "out").read_bytes())
    for number, (a, b, c) in enumerate(operands()):
        wanted = rounded(Fraction(a) * Fraction(b) + Fraction(c))
        assert (found[number], found[number + COUNT]) == (wanted, wanted), (a, b, c)


RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_on_the_cpu_it_is_rounded_once(
    mlir_offload: list[str], tmp_path: Path, release: int, level: str
) -> None:
    flags = (f"--llvm={release}", "--offload-arch=host", level, "-o", str(tmp_path / "app"))
    subprocess.run([*mlir_offload, *flags, *write_program(tmp_path)], check=True)
    subprocess.run([tmp_path / "app", tmp_path / "in", tmp_path / "out"], check=True)
    check_results(tmp_path)


@pytest.mark.llvm(22)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_on_nvidia_gpus_it_is_rounded_once(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, arch: str
) -> None:
    flags = (f"--offload-arch={arch}", *cuda_emulator.options(is_kept=False), "-o")
    words = (*mlir_offload, *flags, str(tmp_path / "app"))
    subprocess.run([*words, *write_program(tmp_path)], check=True)
    ran = run_program(tmp_path / "app", str(tmp_path / "in"), str(tmp_path / "out"))
    assert (ran.returncode, ran.stderr) == (0, "")
    check_results(tmp_path)


@pytest.mark.llvm(22)
@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
def test_on_amd_gpus_it_is_rounded_once(amd: AmdGpu, tmp_path: Path, arch: str) -> None:
    amd.build(22, arch, tmp_path / "app", *write_program(tmp_path))
    ran = amd.run(tmp_path / "app", str(tmp_path / "in"), str(tmp_path / "out"), arch=arch)
    assert (ran.returncode, ran.stderr) == (0, b"")
    check_results(tmp_path)


@pytest.mark.llvm(22)
def test_on_an_opencl_device_it_is_rounded_once(mlir_offload: list[str], tmp_path: Path) -> None:
    found = opencl_environment()
    words = (*mlir_offload, "--offload-arch=spirv64", "-o", str(tmp_path / "app"))
    subprocess.run([*words, *write_program(tmp_path)], check=True)
    environment = os.environ | found
    subprocess.run(
        [tmp_path / "app", tmp_path / "in", tmp_path / "out"], check=True, env=environment
    )
    check_results(tmp_path)
