"""Operations of other dialects than gpu in kernels: those that upstream's passes miss compile, others are explained."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

PARAMETERS = (
    "%i: index, %f: f32, %d: f64, %p: memref<?xf32>, %q: memref<?xf64>, %b: memref<?xbf16>, "
    "%x: memref<?xindex>, %g: memref<?xf32, 1>, %m: memref<?xi32>, %wide: i64, %at: vector<4xi32>, "
    "%mask: vector<4xi1>, %other: vector<4xf32>, %bits: memref<?xvector<3xi1>>, %shorts: memref<?xi16>, %short: i16"
)
BFLOAT = ("exp", "exp2", "log", "log2", "log10", "log1p", "sin", "cos", "tanh", "erf", "sqrt")
COMPILED = {
    "math of bf16": "%v = memref.load %b[%i] : memref<?xbf16>\n"
    + "".join(
        f"%r{n} = math.{name} %{'v' if n == 0 else f'r{n - 1}'} : bf16\n"
        for n, name in enumerate(BFLOAT)
    )
    + f"memref.store %r{len(BFLOAT) - 1}, %b[%i] : memref<?xbf16>",
    "index": (
        "%s, %o = arith.addui_extended %i, %i : index, i1\n%a = math.absi %s : index\n"
        "memref.store %a, %x[%i] : memref<?xindex>"
    ),
    "math of a matrix": (
        "%v = vector.broadcast %f : f32 to vector<2x2xf32>\n%w = math.exp %v : vector<2x2xf32>\n"
        "%e = vector.extract %w[1, 1] : f32 from vector<2x2xf32>\nmemref.store %e, %p[%i] : memref<?xf32>"
    ),
}
COMPILED_BY_22 = {
    "sincos": "%s, %c = math.sincos %d : f64\n%r = arith.addf %s, %c : f64\nmemref.store %r, %q[%i] : memref<?xf64>",
    "clamp": "%r = math.clampf %d to [%d, %d] : f64\nmemref.store %r, %q[%i] : memref<?xf64>",
    "normal": (
        "%v = vector.broadcast %f : f32 to vector<4xf32>\n%n = math.isnormal %v : vector<4xf32>\n"
        "%e = vector.extract %n[1] : i1 from vector<4xi1>\n%w = arith.extui %e : i1 to i32\n"
        "memref.store %w, %m[%i] : memref<?xi32>"
    ),
}
RELEASED = "memref.dealloc %g : memref<?xf32, 1>"
REFUSED = [
    ("%a = memref.alloca() : memref<4xf32, 3>", "host", "memref.alloca is memory of a thread"),
    ("%a = memref.alloc() : memref<4xf32, 3>", "host", "memref.alloc is lowered for global memory"),
    ("%a = memref.alloc() : memref<4xf32>", "gfx90a", "their device libraries have no malloc"),
    ("%v = vector.vscale", "sm_90", "no target has vectors of a scalable size"),
    (
        "%u = memref.cast %p : memref<?xf32> to memref<*xf32> memref.copy %u, %u : memref<*xf32> to memref<*xf32>",
        "host",
        "memref.copy of an unranked memref is not supported",
    ),
    ("%w = arith.extui %wide : i64 to i128", "spirv64", "arith.extui of i128 is not supported"),
    ("%n = arith.trunci %wide : i64 to i24", "spirv64", "arith.trunci of i24 is not supported"),
    (
        "%v = memref.atomic_rmw addi %short, %shorts[%i] : (i16, memref<?xi16>) -> i16",
        "spirv64",
        "memref.atomic_rmw of fewer than 32 bits is not supported",
    ),
    ("%v = memref.load %bits[%i] : memref<?xvector<3xi1>>", "spirv64", "has no booleans in memory"),
    ("%z = arith.extf %d : f64 to f128", "gfx90a", "arith.extf: no GPU has this"),
    (
        "%o = vector.gather %p[%i] [%at], %mask, %other : memref<?xf32>, vector<4xi32>, vector<4xi1>, vector<4xf32> into vector<4xf32>",
        "spirv64",
        "vector.gather is not supported for spirv64: SPIR-V has no masked access",
    ),
    (
        "%a = arith.trunci %short : i16 to i12",
        "spirv64",
        "arith.trunci of i12 is not supported for spirv64: OpenCL has integers of 8, 16, 32 and 64 bits",
    ),
    (
        "%r = vector.bitcast %at : vector<4xi32> to vector<32xi4>",
        "spirv64",
        "vector.bitcast of i4 is not supported for spirv64: OpenCL has integers of 8, 16, 32 and 64 bits",
    ),
    ("vector.print %f : f32", "host", "vector.print is not supported in a kernel"),
    (
        "%h = arith.truncf %f to_nearest_away : f32 to f16",
        "host",
        "arith.truncf to f16 with this rounding mode is not supported",
    ),
]
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


def compiled(
    command: list[str], folder: Path, text: str, arch: str, release: int
) -> subprocess.CompletedProcess[str]:
    source = folder / "k.mlir"
    kernel = f"gpu.func @k({PARAMETERS}) kernel {{\n{text}\ngpu.return }}"
    source.write_text(f"gpu.module @m {{ {kernel} }}\n")
    flags = (f"--llvm={release}", f"--offload-arch={arch}", "-fno-crash-diagnostics")
    words = (*flags, "--offload-device-only", "-S", str(source), "-o", str(folder / "k.s"))
    return subprocess.run([*command, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arch", ["host", "sm_90", "gfx90a"])
@pytest.mark.parametrize("release", RELEASES)
def test_they_compile(mlir_offload: list[str], tmp_path: Path, release: int, arch: str) -> None:
    chosen = COMPILED | (COMPILED_BY_22 if release > 19 else {})
    if arch != "gfx90a":
        chosen |= {"dealloc": RELEASED}
    for name, text in chosen.items():
        done = compiled(mlir_offload, tmp_path, text, arch, release)
        assert (done.returncode, done.stderr) == (0, ""), name


@pytest.mark.parametrize(("text", "arch", "message"), REFUSED)
@pytest.mark.llvm(22)
def test_others_are_explained_at_their_place(
    mlir_offload: list[str], tmp_path: Path, text: str, arch: str, message: str
) -> None:
    done = compiled(mlir_offload, tmp_path, text, arch, 22)
    assert done.returncode == 1
    # A second operation in the line has no result.
    place = text.find(" memref.copy") + 2 if " memref.copy" in text else text.find(" = ") + 4
    assert f"k.mlir:2:{place if ' = ' in text else 1}: error: " in done.stderr
    assert message in done.stderr
    assert "  hint: " in done.stderr


@pytest.mark.llvm(22)
def test_a_prefetch_is_dropped_for_spirv(mlir_offload: list[str], tmp_path: Path) -> None:
    source = tmp_path / "k.mlir"
    source.write_text(
        "gpu.module @m { gpu.func @k(%p: memref<4xf32>, %i: index) kernel {\n"
        "memref.prefetch %p[%i], read, locality<3>, data : memref<4xf32>\ngpu.return } }\n"
    )
    flags = ("--offload-arch=spirv64", "-c", str(source), "-o", str(tmp_path / "k.o"))
    subprocess.run([*mlir_offload, *flags], check=True)


@pytest.mark.llvm(22)
def test_the_sizes_of_vectors_in_spirv_are_explained(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "k.mlir"
    source.write_text(
        "gpu.module @m { gpu.func @k(%p: memref<6xf32>, %q: memref<6xf32>) kernel {\n"
        "%c0 = arith.constant 0 : index %v = vector.load %p[%c0] : memref<6xf32>, vector<6xf32>\n"
        "%w = arith.addf %v, %v : vector<6xf32> vector.store %w, %q[%c0] : memref<6xf32>, vector<6xf32>\n"
        "gpu.return } }\n"
    )
    flags = ("--offload-arch=spirv64", "-c", str(source), "-o", str(tmp_path / "k.o"))
    done = subprocess.run([*mlir_offload, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "  hint: SPIR-V has vectors of 2, 3, 4, 8 and 16 elements" in done.stderr
