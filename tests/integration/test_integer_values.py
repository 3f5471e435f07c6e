"""Operations on integers whose lowering is the driver's own, against Python's integers, on every kind of device."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from support.amd_emulator import AmdGpu
from support.cuda_emulator import CudaEmulator
from support.row_program import RowProgram

EDGES = (0, 1, -1, 2, -2, 3, 10**9 + 7, 2**31, -(2**31), 2**32 - 1, 2**32, 2**62, 2**63 - 1, -(2**63),
         -(2**63) + 1, 0x123456789ABCDEF)  # fmt: skip
ROWS = list(itertools.product(EDGES, EDGES))
HALF, WHOLE = 1 << 63, 1 << 64
# The bits of -1.0 as f64.
MINUS_ONE = 0xBFF << 52


def wrapped(value: int) -> int:
    return (value + HALF) % WHOLE - HALF


def high(a: int, b: int, *, is_signed: bool) -> int:
    return (a * b if is_signed else (a % WHOLE) * (b % WHOLE)) >> 64


def product(name: str, kind: str) -> str:
    """Return code for the upper half of a product."""
    if kind == "i64":
        return f"%low, %r = arith.{name}_extended %x, %y : i64"
    if kind == "index":
        return (
            "%a = arith.index_cast %x : i64 to index\n    %b = arith.index_cast %y : i64 to index\n"
            f"    %low, %h = arith.{name}_extended %a, %b : index\n"
            "    %r = arith.index_cast %h : index to i64"
        )
    # The product in the last element; both halves are used.
    return (
        f"%a = vector.broadcast %y : i64 to {kind}\n"
        f"    %b = vector.insert %x, %a[1, 1] : i64 into {kind}\n"
        f"    %low, %high = arith.{name}_extended %b, %a : {kind}\n"
        f"    %p = vector.extract %low[0, 0] : i64 from {kind}\n"
        f"    %q = vector.extract %high[1, 1] : i64 from {kind}\n    %r = arith.xori %p, %q : i64"
    )


def halves(a: int, b: int, *, is_signed: bool) -> int:
    return b * b ^ high(a, b, is_signed=is_signed)


def carried(a: int, b: int) -> int:
    total = a % WHOLE + b % WHOLE
    return total ^ (total >> 64)


def quotient(name: str, bits: int, a: int, b: int) -> int:
    """Return a / (b | 3 ^ 4), rounded up or down; the divisor is not 0 or -1 for any row."""
    whole = 1 << bits

    def of(value: int) -> int:
        value %= whole
        return value - whole if name.endswith("si") and value >= whole // 2 else value

    left, right = of(a), of((b | 3) ^ 4)
    found = left // right if name.startswith("floor") else -(-left // right)
    return (found + whole // 2) % whole - whole // 2


def leading(value: int) -> int:
    return 64 - (value % WHOLE).bit_length()


def trailing(value: int) -> int:
    return 64 if value == 0 else (value & -value).bit_length() - 1


def counted(kind: str) -> str:
    """Return code for the sum of the zeros before x and behind y, of a type of 64 bits."""
    if kind == "index":
        return (
            "%a = arith.index_cast %x : i64 to index\n    %b = arith.index_cast %y : i64 to index\n"
            "    %l = math.ctlz %a : index\n    %t = math.cttz %b : index\n"
            "    %s = arith.addi %l, %t : index\n    %r = arith.index_cast %s : index to i64"
        )
    return (
        f"%a = vector.broadcast %y : i64 to {kind}\n"
        f"    %b = vector.insert %x, %a[1, 0] : i64 into {kind}\n"
        f"    %l = math.ctlz %b : {kind}\n    %t = math.cttz %b : {kind}\n"
        f"    %m = vector.extract %l[1, 0] : i64 from {kind}\n"
        f"    %n = vector.extract %t[0, 1] : i64 from {kind}\n    %r = arith.addi %m, %n : i64"
    )


Oracle = Callable[[int, int], int]
OPERATIONS: dict[str, tuple[str, Oracle]] = {
    **{
        f"{name} {kind}": (product(name, kind), partial(high, is_signed=name == "mulsi"))
        for name in ("mulsi", "mului")
        for kind in ("i64", "index")
    },
    **{
        f"{name} vector": (
            product(name, "vector<2x2xi64>"),
            partial(halves, is_signed=is_signed),
        )
        for name, is_signed in (("mulsi", True), ("mului", False))
    },
    "sum": (
        ("%s, %o = arith.addui_extended %x, %y : i64, i1\n    %w = arith.extui %o : i1 to i64\n"
        "    %r = arith.xori %s, %w : i64"),
        carried,
    ),
    "sum of index": (
        (
            "%a = arith.index_cast %x : i64 to index\n    %b = arith.index_cast %y : i64 to index\n"
            "    %s, %o = arith.addui_extended %a, %b : index, i1\n    %t = arith.index_cast %s : index to i64\n"
            "    %w = arith.extui %o : i1 to i64\n    %r = arith.xori %t, %w : i64"
        ),
        carried,
    ),
    **{
        f"count {kind}": (counted(kind), lambda a, b: leading(a) + trailing(b))
        for kind in ("index", "vector<2x2xi64>")
    },
    "strided copy": (
        (
            "%k0 = arith.constant 0 : index\n    %k1 = arith.constant 1 : index\n"
            "    %m = memref.alloca() : memref<4x2xi64>\n    %t = memref.alloca() : memref<2x2xi64>\n"
            "    memref.store %x, %m[%k1, %k0] : memref<4x2xi64>\n"
            "    %three = arith.constant 3 : index\n    memref.store %y, %m[%three, %k1] : memref<4x2xi64>\n"
            "    %part = memref.subview %m[1, 0] [2, 2] [2, 1]\n"
            "      : memref<4x2xi64> to memref<2x2xi64, strided<[4, 1], offset: 2>>\n"
            "    memref.copy %part, %t : memref<2x2xi64, strided<[4, 1], offset: 2>> to memref<2x2xi64>\n"
            "    %p = memref.load %t[%k0, %k0] : memref<2x2xi64>\n"
            "    %q = memref.load %t[%k1, %k1] : memref<2x2xi64>\n    %r = arith.subi %p, %q : i64"
        ),
        lambda a, b: a - b,
    ),
    "absolute": (
        ("%a = arith.index_cast %x : i64 to index\n    %b = math.absi %a : index\n"
        "    %r = arith.index_cast %b : index to i64"),
        lambda a, _: abs(a),
    ),
    "zeros": (
        (
            "%seven = arith.constant 7 : i64\n    %d = arith.ceildivsi %x, %seven : i64\n"
            "    %zero = arith.constant 0.0 : f64\n    %f = arith.sitofp %x : i64 to f64\n"
            "    %g = arith.sitofp %y : i64 to f64\n    %a = math.copysign %zero, %f : f64\n"
            "    %b = math.copysign %zero, %g : f64\n    %m = arith.maximumf %a, %b : f64\n"
            "    %n = arith.minimumf %a, %b : f64\n    %p = arith.bitcast %m : f64 to i64\n"
            "    %q = arith.bitcast %n : f64 to i64\n    %one = arith.constant 1 : i64\n"
            "    %s = arith.shrui %q, %one : i64\n    %t = arith.ori %p, %s : i64\n    %r = arith.xori %t, %d : i64"
        ),
        lambda a, b: (HALF * (a < 0 and b < 0) | (HALF // 2) * (a < 0 or b < 0)) ^ wrapped(-(-a // 7)) % WHOLE,
    ),
    **{
        f"{name} {kind}": (
            (
                f"%three = arith.constant 3 : i64\n    %q = arith.ori %y, %three : i64\n"
                "    %four = arith.constant 4 : i64\n    %o = arith.xori %q, %four : i64\n"
                f"    %a = arith.{cast} %x : i64 to {kind}\n    %b = arith.{cast} %o : i64 to {kind}\n"
                f"    %d = arith.{name} %a, %b : {kind}\n    %r = arith.{back} %d : {kind} to i64"
            ),
            partial(quotient, name, bits),
        )
        for name in ("ceildivsi", "ceildivui", "floordivsi")
        for kind, bits, cast, back in (
            ("index", 64, "index_cast", "index_cast"),
            ("i32", 32, "trunci", "extsi"),
            ("i8", 8, "trunci", "extsi"),
        )
    },
    "truth": (
        ("%t = arith.trunci %x : i64 to i1\n    %f = arith.uitofp %t : i1 to f32\n    %u = arith.fptoui %f : f32 to i1\n"
        "    %r = arith.extui %u : i1 to i64"),
        lambda a, _: a & 1,
    ),
    # The bits of x in private memory, of which y determines one.
    "truth in memory": (
        "%m = memref.alloca() : memref<8xi1>\n"
        + "".join(
            f"    %k{at} = arith.constant {at} : index\n    %w{at} = arith.constant {at} : i64\n"
            f"    %x{at} = arith.shrui %x, %w{at} : i64\n    %b{at} = arith.trunci %x{at} : i64 to i1\n"
            f"    memref.store %b{at}, %m[%k{at}] : memref<8xi1>\n"
            for at in range(8)
        )
        + "    %p = arith.andi %y, %w7 : i64\n    %i = arith.index_cast %p : i64 to index\n"
        "    %t = memref.load %m[%i] : memref<8xi1>\n    %r = arith.extui %t : i1 to i64",
        lambda a, b: a >> (b & 7) & 1,
    ),
    "negative truth": (
        "%t = arith.trunci %x : i64 to i1\n    %f = arith.sitofp %t : i1 to f64\n    %r = arith.bitcast %f : f64 to i64",
        lambda a, _: MINUS_ONE if a & 1 else 0,
    ),
    "extended truth": (
        ("%t = arith.cmpi slt, %x, %y : i64\n    %w = arith.extsi %t : i1 to i32\n    %f = arith.sitofp %w : i32 to f64\n"
        "    %r = arith.bitcast %f : f64 to i64"),
        lambda a, b: MINUS_ONE if a < b else 0,
    ),
}  # fmt: skip


def program(left_out: str = "-") -> RowProgram:
    texts = {name: text for name, (text, _) in OPERATIONS.items() if left_out not in name}
    return RowProgram({"x": "i64", "y": "i64"}, tuple(zip(*ROWS, strict=True)), texts, "i64")


def check(results: Mapping[str, Sequence[float]]) -> None:
    wrong = {
        name: (row, value, wrapped(OPERATIONS[name][1](*row)))
        for name, found in results.items()
        for row, value in zip(ROWS, found, strict=True)
        if value != wrapped(OPERATIONS[name][1](*row))
    }
    assert wrong == {}


RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


@pytest.mark.parametrize("release", RELEASES)
def test_on_the_cpu(mlir_offload: list[str], tmp_path: Path, release: int) -> None:
    check(program().run(mlir_offload, tmp_path, f"--llvm={release}", "--offload-arch=host"))


@pytest.mark.parametrize("release", RELEASES)
def test_on_nvidia_gpus(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, release: int
) -> None:
    flags = (f"--llvm={release}", "--offload-arch=sm_90")
    check(program().run_on_cuda(mlir_offload, cuda_emulator, tmp_path, *flags))


@pytest.mark.llvm(22)
def test_on_amd_gpus(amd: AmdGpu, tmp_path: Path) -> None:
    # The emulator has no integers of 128 bits.
    check(program("mul").run_on_amd(amd, tmp_path, "gfx90a"))


@pytest.mark.llvm(22)
def test_on_an_opencl_device(mlir_offload: list[str], tmp_path: Path) -> None:
    check(program().run(mlir_offload, tmp_path, "--offload-arch=spirv64", opencl=True))


@pytest.mark.llvm(19)
def test_true_of_memory_is_minus_one_on_nvidia_gpus(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source, code = tmp_path / "k.mlir", tmp_path / "k.s"
    source.write_text(
        "gpu.module @m { gpu.func @k(%p: memref<?xf32>, %q: memref<?xi1>) kernel {\n"
        "  %c0 = arith.constant 0 : index\n  %t = memref.load %q[%c0] : memref<?xi1>\n"
        "  %w = arith.extsi %t : i1 to i32\n  %r = arith.sitofp %w : i32 to f32\n"
        "  memref.store %r, %p[%c0] : memref<?xf32>\n  gpu.return } }\n"
    )
    flags = ("--llvm=19", "--offload-arch=sm_90", "-S", "--offload-device-only")
    subprocess.run([*mlir_offload, *flags, source, "-o", code], check=True)
    assert "selp.u32" not in code.read_text()
