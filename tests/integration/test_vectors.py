"""Vectors whose lowering is the driver's own, against Python's integers: in host code and on every kind of device."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from support.amd_emulator import AmdGpu
from support.cuda_emulator import CudaEmulator, run_program
from support.row_program import RowProgram

EDGES = (
    0,
    1,
    -1,
    2,
    3,
    5,
    8,
    9,
    -8,
    2**31,
    2**32,
    2**32 + 3,
    -(2**32),
    2**63 - 1,
    -(2**63),
    0x123456789ABCDEF,
)
COLUMN = (EDGES * 8)[:128]
SIZE = 9


class Case(NamedTuple):
    """Code that computes %r from %x, both i64, and the function."""

    text: str
    result: Callable[[int], int]


def memory(bits: int, body: str) -> str:
    """Return code on a buffer of nine integers whose first element is the lowest bits of %x, the next follow."""
    return f"""\
%k0 = arith.constant 0 : index
    %k1 = arith.constant 1 : index
    %k9 = arith.constant {SIZE} : index
    %width = arith.constant {bits} : i64
    %m = memref.alloca() : memref<{SIZE}xi{bits}>
    scf.for %i = %k0 to %k9 step %k1 {{
      %n = arith.index_cast %i : index to i64
      %s = arith.muli %n, %width : i64
      %low = arith.constant 63 : i64
      %shift = arith.andi %s, %low : i64
      %shifted = arith.shrui %x, %shift : i64
      %element = arith.trunci %shifted : i64 to i{bits}
      memref.store %element, %m[%i] : memref<{SIZE}xi{bits}>
    }}
    {body}"""


def elements(value: int, bits: int) -> list[int]:
    """Return what `memory` stores."""
    return [(value % 2**64 >> place * bits % 64) % 2**bits for place in range(SIZE)]


def summed(bits: int, count: int) -> str:
    """Return code for %r, a number from all elements of the vector %v."""
    wide = f"%w = arith.extui %v : vector<{count}xi{bits}> to vector<{count}xi64>"
    steps = (
        f"%e{place} = vector.extract %w[{place}] : i64 from vector<{count}xi64>\n"
        f"    %seven{place} = arith.constant 7 : i64\n    %p{place} = arith.muli %r{place}, %seven{place} : i64\n"
        f"    %r{place + 1 if place + 1 < count else ''} = arith.addi %p{place}, %e{place} : i64"
        for place in range(count)
    )
    return "\n    ".join((wide, "%r0 = arith.constant 0 : i64", *steps))


def stored(bits: int) -> str:
    """Return code for %r, a number from all elements in memory."""
    return f"""\
%zero = arith.constant 0 : i64
    %seven = arith.constant 7 : i64
    %r = scf.for %i = %k0 to %k9 step %k1 iter_args(%earlier = %zero) -> (i64) {{
      %one = memref.load %m[%i] : memref<{SIZE}xi{bits}>
      %number = arith.extui %one : i{bits} to i64
      %part = arith.muli %earlier, %seven : i64
      %sum = arith.addi %part, %number : i64
      scf.yield %sum : i64
    }}"""


def number(values: Sequence[int]) -> int:
    """Return what `summed` and `stored` compute."""
    found = 0
    for value in values:
        found = found * 7 + value
    return (found + 2**63) % 2**64 - 2**63


# A mask, and the elements that it has.
MASK, CHOSEN = "dense<[true, false, true, true, false]> : vector<5xi1>", (0, 2, 3)


def memory_cases(bits: int) -> dict[str, Case]:
    """Return loads and stores of a part of the buffer."""
    kind, vector, pad = f"memref<{SIZE}xi{bits}>", f"vector<5xi{bits}>", 1
    constants = {
        "%q": f"%q = arith.constant dense<{'true' if bits == 1 else 1}> : {vector}\n    ",
        "%mask": f"%mask = arith.constant {MASK}\n    ",
        "%pad": f"%pad = arith.constant {'true' if bits == 1 else f'{pad} : i{bits}'}\n    ",
        "%k2": "%k2 = arith.constant 2 : index\n    ",
        "%k6": "%k6 = arith.constant 6 : index\n    ",
    }
    # The code, and where the result has each element: from memory, or the padding.
    loads: dict[str, tuple[str, list[int | None]]] = {
        "load": ("vector.load %m[%k2] : KIND, VECTOR", [2, 3, 4, 5, 6]),
        "read": ("vector.transfer_read %m[%k6], %pad : KIND, VECTOR", [6, 7, 8, None, None]),
        "masked read": ("vector.transfer_read %m[%k6], %pad, %mask : KIND, VECTOR", [6, None, 8, None, None]),
        "maskedload": ("vector.maskedload %m[%k2], %mask, %q : KIND, vector<5xi1>, VECTOR into VECTOR", [2, None, 4, 5, None]),
        "expandload": ("vector.expandload %m[%k2], %mask, %q : KIND, vector<5xi1>, VECTOR into VECTOR", [2, None, 3, 4, None]),
    }  # fmt: skip
    stores: dict[str, tuple[str, list[int]]] = {
        "store": ("vector.store %q, %m[%k2] : KIND, VECTOR", [2, 3, 4, 5, 6]),
        "write": ("vector.transfer_write %q, %m[%k6] : VECTOR, KIND", [6, 7, 8]),
        "masked write": ("vector.transfer_write %q, %m[%k6], %mask : VECTOR, KIND", [6, 8]),
        "maskedstore": ("vector.maskedstore %m[%k2], %mask, %q : KIND, vector<5xi1>, VECTOR", [2, 4, 5]),
        "compressstore": ("vector.compressstore %m[%k2], %mask, %q : KIND, vector<5xi1>, VECTOR", [2, 3, 4]),
    }  # fmt: skip

    def written(code: str, result: str = "") -> str:
        named = code.replace("KIND", kind).replace("VECTOR", vector)
        return "".join(text for name, text in constants.items() if name in code) + result + named

    def loaded(places: Sequence[int | None]) -> Callable[[int], int]:
        return lambda x: number(
            [pad if place is None else elements(x, bits)[place] for place in places]
        )

    def left(places: Sequence[int]) -> Callable[[int], int]:
        return lambda x: number(
            [1 if place in places else one for place, one in enumerate(elements(x, bits))]
        )

    cases = {}
    for name, (code, places) in loads.items():
        text = memory(bits, f"{written(code, '%v = ')}\n    {summed(bits, 5)}")
        cases[f"{name} i{bits}"] = Case(text, loaded(places))
    for name, (code, chosen) in stores.items():
        text = memory(bits, f"{written(code)}\n    {stored(bits)}")
        cases[f"{name} i{bits}"] = Case(text, left(chosen))
    return cases


def row(x: int) -> int:
    """Return an index below 3."""
    return x % 2**64 % 3


ROW = """%three = arith.constant 3 : i64
    %rest = arith.remui %x, %three : i64
    %i = arith.index_cast %rest : i64 to index
    """
FILLED = "%a = arith.constant dense<[[1, 2], [3, 4], [5, 6]]> : vector<3x2xi64>\n    "
CASES = {
    **memory_cases(1),
    **memory_cases(4),
    **memory_cases(24),
    "mask of a size that 32 bits do not hold": Case(
        "%i = arith.index_cast %x : i64 to index\n    %v = vector.create_mask %i : vector<5xi1>\n    " + summed(1, 5),
        lambda x: number([place < x for place in range(5)]),
    ),
    "maximum of chosen elements": Case(
        "%b = arith.trunci %x : i64 to i1\n    %mask = vector.broadcast %b : i1 to vector<2xi1>\n"
        "    %v = arith.constant dense<[-3.0, -5.0]> : vector<2xf32>\n    %start = arith.constant -4.0 : f32\n"
        "    %f = vector.mask %mask { vector.reduction <maximumf>, %v, %start : vector<2xf32> into f32 } : vector<2xi1> -> f32\n"
        "    %r = arith.fptosi %f : f32 to i64",
        lambda x: -3 if x % 2 else -4,
    ),
    "minimum of chosen elements": Case(
        "%b = arith.trunci %x : i64 to i1\n    %mask = vector.broadcast %b : i1 to vector<2xi1>\n"
        "    %v = arith.constant dense<[7, 9]> : vector<2xi64>\n    %start = arith.constant 8 : i64\n"
        "    %r = vector.mask %mask { vector.reduction <minsi>, %v, %start : vector<2xi64> into i64 } : vector<2xi1> -> i64",
        lambda x: 7 if x % 2 else 8,
    ),
    "read of chosen elements": Case(
        memory(
            8,
            "%k2 = arith.constant 2 : index\n    %pad = arith.constant 1 : i8\n"
            f"    %mask = arith.constant {MASK}\n"
            "    %v = vector.mask %mask { vector.transfer_read %m[%k2], %pad : memref<9xi8>, vector<5xi8> }"
            " : vector<5xi1> -> vector<5xi8>\n    " + summed(8, 5),
        ),
        lambda x: number([elements(x, 8)[place + 2] if place in CHOSEN else 1 for place in range(5)]),
    ),
    "extract a row": Case(
        ROW + FILLED + "%v = vector.extract %a[%i] : vector<2xi64> from vector<3x2xi64>\n"
        "    %e = vector.extract %v[0] : i64 from vector<2xi64>\n    %f = vector.extract %v[1] : i64 from vector<2xi64>\n"
        "    %ten = arith.constant 10 : i64\n    %g = arith.muli %e, %ten : i64\n    %r = arith.addi %g, %f : i64",
        lambda x: (12, 34, 56)[row(x)],
    ),
    "extract an element": Case(
        ROW + FILLED + "%r = vector.extract %a[%i, 1] : i64 from vector<3x2xi64>", lambda x: 2 * row(x) + 2
    ),
    "insert a row": Case(
        ROW + FILLED + "%q = vector.broadcast %x : i64 to vector<2xi64>\n"
        "    %b = vector.insert %q, %a[%i] : vector<2xi64> into vector<3x2xi64>\n"
        "    %e = vector.extract %b[0, 1] : i64 from vector<3x2xi64>\n    %f = vector.extract %b[2, 0] : i64 from vector<3x2xi64>\n"
        "    %r = arith.xori %e, %f : i64",
        lambda x: (x if row(x) == 0 else 2) ^ (x if row(x) == 2 else 5),
    ),
    "insert an element": Case(
        ROW + FILLED + "%b = vector.insert %x, %a[%i, 1] : i64 into vector<3x2xi64>\n"
        "    %r = vector.extract %b[1, 1] : i64 from vector<3x2xi64>",
        lambda x: x if row(x) == 1 else 4,
    ),
    "matrix in memory": Case(
        ROW + FILLED + "%m = memref.alloca() : memref<4x3xi64>\n    %k0 = arith.constant 0 : index\n    %k1 = arith.constant 1 : index\n"
        "    vector.store %a, %m[%k1, %k1] : memref<4x3xi64>, vector<3x2xi64>\n"
        "    %b = vector.load %m[%k1, %k1] : memref<4x3xi64>, vector<2x1xi64>\n"
        "    %e = vector.extract %b[1, 0] : i64 from vector<2x1xi64>\n    %f = memref.load %m[%k1, %k1] : memref<4x3xi64>\n"
        "    %r = arith.subi %e, %f : i64",
        lambda _: 2,
    ),
    "read of a buffer whose size is a variable": Case(
        ROW + "%z = arith.constant 0 : index\n    %five = arith.constant 5 : i64\n    %seven = arith.constant 7 : i64\n"
        "    %one = arith.constant 1 : index\n    %m = memref.alloca() : memref<2xi64>\n"
        "    memref.store %five, %m[%z] : memref<2xi64>\n    memref.store %x, %m[%one] : memref<2xi64>\n"
        "    %n = arith.minui %i, %one : index\n    %size = arith.addi %n, %one : index\n"
        "    %d = memref.reinterpret_cast %m to offset: [0], sizes: [%size], strides: [1] : memref<2xi64> to memref<?xi64, strided<[1]>>\n"
        "    %v = vector.transfer_read %d[%z], %seven : memref<?xi64, strided<[1]>>, vector<3xi64>\n"
        "    %e = vector.extract %v[1] : i64 from vector<3xi64>\n    %f = vector.extract %v[2] : i64 from vector<3xi64>\n"
        "    %r = arith.xori %e, %f : i64",
        lambda x: (x if row(x) else 7) ^ 7,
    ),
}  # fmt: skip


def program() -> RowProgram:
    texts = {name: case.text for name, case in CASES.items()}
    return RowProgram({"x": "i64"}, (COLUMN,), texts, "i64")


def check(results: Mapping[str, Sequence[float]]) -> None:
    wrong = {
        name: (x, value, CASES[name].result(x))
        for name, found in results.items()
        for x, value in zip(COLUMN, found, strict=True)
        if value != CASES[name].result(x)
    }
    assert wrong == {}


RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


@pytest.mark.parametrize("is_host", [False, True], ids=["kernel", "host"])
@pytest.mark.parametrize("release", RELEASES)
def test_on_the_cpu(
    mlir_offload: list[str], tmp_path: Path, release: int, *, is_host: bool
) -> None:
    flags = (f"--llvm={release}", "--offload-arch=host")
    check(program().run(mlir_offload, tmp_path, *flags, is_host=is_host))


@pytest.mark.parametrize("release", RELEASES)
def test_on_nvidia_gpus(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, release: int
) -> None:
    flags = (f"--llvm={release}", "--offload-arch=sm_80")
    check(program().run_on_cuda(mlir_offload, cuda_emulator, tmp_path, *flags))


@pytest.mark.llvm(22)
def test_on_amd_gpus(amd: AmdGpu, tmp_path: Path) -> None:
    check(program().run_on_amd(amd, tmp_path, "gfx90a"))


PACKED = Path(__file__).parent / "inputs" / "packed_memory.mlir"


@pytest.mark.llvm(22)
def test_the_host_and_kernels_agree_on_packed_vectors(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, amd: AmdGpu, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    flags = ("--offload-arch=host,sm_90", *cuda_emulator.options(is_kept=False))
    subprocess.run([*mlir_offload, *flags, PACKED, "-o", program], check=True)
    for device in ("host", "cuda"):
        ran = run_program(program, device=device)
        assert (ran.returncode, ran.stderr) == (0, ""), device
    amd.build(22, "gfx90a", program, PACKED)
    ran_on_amd = amd.run(program)
    assert (ran_on_amd.returncode, ran_on_amd.stderr) == (0, b"")


REFUSED = {
    "%r = vector.bitcast %v : vector<3xi16> to vector<2xi24>": "LLVM computes a vector.bitcast from vector<3xi16> to vector<2xi24> wrongly",
    "%r = vector.type_cast %m : memref<2x3xf16> to memref<vector<2x3xf16>>": "vector.type_cast to memref<vector<2x3xf16>> is not supported: the rows of the vector have gaps in memory",
    "%r = vector.type_cast %b : memref<8xi1> to memref<vector<8xi1>>": "vector.type_cast to memref<vector<8xi1>> is not supported: the elements of the vector are packed in memory",
}


@pytest.mark.parametrize("is_host", [False, True], ids=["kernel", "host"])
@pytest.mark.parametrize(("text", "message"), REFUSED.items())
@pytest.mark.llvm(22)
def test_others_are_rejected_at_their_place(
    mlir_offload: list[str], tmp_path: Path, text: str, message: str, *, is_host: bool
) -> None:
    source = tmp_path / "k.mlir"
    parameters = "(%v: vector<3xi16>, %m: memref<2x3xf16>, %b: memref<8xi1>)"
    kind = text.rpartition(" to ")[2]
    if is_host:
        source.write_text(f"func.func @f{parameters} -> {kind} {{\n{text}\nreturn %r : {kind} }}\n")
    else:
        kernel = f"gpu.func @f{parameters} kernel {{\n{text}\ngpu.return }}"
        source.write_text(f"gpu.module @m {{ {kernel} }}\n")
    words = ("--offload-arch=host", "-c", str(source), "-o", str(tmp_path / "k.o"))
    done = subprocess.run([*mlir_offload, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, f"k.mlir:2:6: error: {message}" in done.stderr) == (1, True), (
        done.stderr
    )
    assert "  hint: " in done.stderr
