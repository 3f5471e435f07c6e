"""arith and math in host code and in kernels on the CPU, executed, against results computed with rational numbers."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from support.arithmetic_case import (
    FORMATS,
    FRAME,
    Case,
    Frames,
    Function,
    Row,
    encoded,
    functions_of,
    is_same,
    sign_key,
    width,
)
from support.arithmetic_conversion import conversion_cases, index_cases
from support.arithmetic_float import float_cases, power_cases, wide_cases
from support.arithmetic_integer import integer_cases

REDUCTIONS = Path(__file__).parent / "inputs" / "host_reductions.mlir"
LATE = tuple(re.findall(r"@(\w+)_OP_TY", REDUCTIONS.read_text()))
VALUES = (0.0, -0.0, 1.0, -1.0, math.nan)
PAIRS = [
    pytest.param(*pair, marks=[pytest.mark.llvm(one) for one in {*pair}])
    for pair in ((22, 22), (19, 19), (22, 19), (22, 16))
]
LEVELS = [
    pytest.param(lowers, links, level, marks=[pytest.mark.llvm(one) for one in {lowers, links}])
    for lowers, links, level in (
        (22, 22, "-O2"),
        (22, 22, "-O0"),
        (19, 19, "-O2"),
        (22, 16, "-O2"),
        (22, 15, "-O0"),
    )
]


@cache
def all_cases() -> tuple[Case, ...]:
    return (
        *(case for kind in FORMATS for case in float_cases(kind)),
        *(case for kind in ("i8", "i16", "i32", "i64", "index") for case in integer_cases(kind)),
        *conversion_cases(),
        *index_cases(),
        *power_cases(),
        *wide_cases(),
    )


def build(driver: list[str], source: Path, *flags: str) -> ctypes.CDLL:
    library = source.with_suffix(".so")
    words = [
        *driver,
        "--offload-arch=host",
        "-shared",
        "-fPIC",
        *flags,
        str(source),
        "-o",
        str(library),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def filled(template: str) -> str:
    """Return the functions of the template for each operation and type."""
    return "".join(
        template.replace("OP", operation).replace("TY", kind)
        for operation, kind in product(("maximum", "minimum"), FORMATS)
    )


class Memref(ctypes.Structure):
    """A memref of one or no dimension."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("allocated", "aligned")),
        *((name, ctypes.c_int64) for name in ("offset", "size", "stride")),
    )


def memref(address: int) -> Memref:
    return Memref(address, address, 0, 4, 1)


def wrong_results(library: ctypes.CDLL, functions: tuple[Function, ...]) -> Iterator[object]:
    frames = Frames(1)
    for function in functions:
        called = library[function.name]
        called.argtypes, called.restype = (ctypes.c_void_p,) * 2, None
        for rows in function.calls:
            results = frames.call(called, (function.arguments(rows),))
            yield from function.wrong(rows, results)


def wrong_reductions(library: ctypes.CDLL, names: tuple[str, ...]) -> Iterator[object]:
    for name, operation, kind in product(names, ("maximum", "minimum"), FORMATS):
        size = width(kind) // 8
        memory = ctypes.create_string_buffer(5 * size)
        start = ctypes.addressof(memory)
        called = library[f"_mlir_ciface_{name}_{operation}_{kind}"]
        for values in product(VALUES, repeat=4):
            given = (encoded(kind, one).to_bytes(size, "little") for one in values)
            ctypes.memmove(memory, b"".join(given), 4 * size)
            called(ctypes.byref(memref(start)), ctypes.byref(memref(start + 4 * size)))
            found = int.from_bytes(memory.raw[4 * size :], "little")
            best = (max if operation == "maximum" else min)(values, key=sign_key)
            exact = math.nan if any(map(math.isnan, values)) else best
            if not is_same(kind, found, encoded(kind, exact)):
                yield name, operation, kind, values, hex(found)


@pytest.mark.parametrize(("lowers", "links", "level"), LEVELS)
def test_host_code_has_the_exact_results(
    mlir_offload: list[str], tmp_path: Path, lowers: int, links: int, level: str
) -> None:
    functions = functions_of(case for case in all_cases() if case.since <= lowers)
    template = filled(REDUCTIONS.read_text())
    source = tmp_path / "host.mlir"
    source.write_text("".join((*(one.text for one in functions), template)))
    library = build(
        mlir_offload, source, f"--llvm={lowers}", f"--for-clang={links}", "--pipeline=gpu", level
    )
    assert list(wrong_results(library, functions)) == []
    assert list(wrong_reductions(library, LATE)) == []


RELEASES = [pytest.param(one, marks=pytest.mark.llvm(one)) for one in (19, 22)]


@pytest.mark.parametrize("release", RELEASES)
def test_kernels_on_the_cpu_have_the_exact_results(
    mlir_offload: list[str], tmp_path: Path, release: int
) -> None:
    # Devices have no rounding to nearest, away from zero, and numbers of at most 64 bits.
    functions = functions_of(
        case
        for case in all_cases()
        if case.since <= release and not re.search("away|f80|f128", case.name)
    )
    groups = tuple(functions[start : start + 40] for start in range(0, len(functions), 40))
    source = tmp_path / "kernels.mlir"
    source.write_text(kernels_of(groups))
    library = build(mlir_offload, source, f"--llvm={release}", "-O1")
    assert list(wrong_in_kernels(library, groups)) == []


@pytest.mark.parametrize(("lowers", "links"), PAIRS)
def test_atomics_in_kernels_on_the_cpu_keep_nan(
    mlir_offload: list[str], tmp_path: Path, lowers: int, links: int
) -> None:
    template = REDUCTIONS.read_text()
    function = template[template.index("func.func @atomic") :]
    launch = """\
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
"""
    function = function.replace("  %first =", f"{launch}  %first =")
    function = function.replace("  return", "  gpu.terminator\n  }\n  return")
    source = tmp_path / "atomic.mlir"
    source.write_text(filled(function))
    library = build(mlir_offload, source, f"--llvm={lowers}", f"--for-clang={links}", "-O1")
    assert list(wrong_reductions(library, ("atomic",))) == []


@pytest.mark.parametrize("release", RELEASES)
def test_operations_on_two_constants_have_the_exact_results(
    mlir_offload: list[str], tmp_path: Path, release: int
) -> None:
    """LLVM 19 folds the maximum of a constant and a constant NaN to NaN."""
    kernel = """\
gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
           threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {{
{}
gpu.terminator
}}"""
    lines = [
        f"%{name}{place} = arith.{name} %{operands} : f32\n"
        f"memref.store %{name}{place}, %x[%c{place}] : memref<8xf32>"
        for name, first in (("maxnumf", 0), ("minnumf", 2))
        for place, operands in ((first, "n, %one"), (first + 1, "one, %n"))
    ]
    code = "\n".join(lines)
    constants = [f"%c{place} = arith.constant {place} : index" for place in range(4)]
    constants += ["%one = arith.constant 1.0 : f32", "%n = arith.constant 0x7FC00000 : f32"]
    head = "attributes {llvm.emit_c_interface} {"
    source = tmp_path / "constants.mlir"
    source.write_text(
        "\n".join(
            f"func.func @{name}(%x: memref<8xf32>) {head}\n{chr(10).join(constants)}\n{body}\nreturn\n}}"
            for name, body in (("host", code), ("device", kernel.format(code)))
        )
    )
    library = build(mlir_offload, source, f"--llvm={release}", "-O1")
    for name in ("host", "device"):
        numbers = (ctypes.c_float * 8)()
        library[f"_mlir_ciface_{name}"](ctypes.byref(memref(ctypes.addressof(numbers))))
        assert list(numbers[:4]) == [1.0] * 4


def kernels_of(groups: tuple[tuple[Function, ...], ...]) -> str:
    """Return a program with a kernel for each group, and a function that launches it."""
    lines = ["module attributes {gpu.container_module} {", "gpu.module @m {"]
    lines += [function.text for group in groups for function in group]
    for number, group in enumerate(groups):
        lines.append(f"gpu.func @k{number}(%in: !llvm.ptr, %out: !llvm.ptr) kernel {{")
        for place, function in enumerate(group):
            lines += [
                f"%{name}{place} = llvm.getelementptr %{name}[{FRAME * place}] : (!llvm.ptr) -> !llvm.ptr, i8"
                for name in ("in", "out")
            ]
            lines.append(
                f"func.call @{function.name}(%in{place}, %out{place}) : (!llvm.ptr, !llvm.ptr) -> ()"
            )
        lines += ["gpu.return", "}"]
    lines.append("}")
    for number in range(len(groups)):
        lines += [
            f"func.func @g{number}(%in: !llvm.ptr, %out: !llvm.ptr) {{",
            "%c1 = arith.constant 1 : index",
            f"gpu.launch_func @m::@k{number} blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)",
            "  args(%in : !llvm.ptr, %out : !llvm.ptr)",
            "return",
            "}",
        ]
    return "\n".join([*lines, "}", ""])


def wrong_in_kernels(
    library: ctypes.CDLL, groups: tuple[tuple[Function, ...], ...]
) -> Iterator[object]:
    for number, group in enumerate(groups):
        frames, called = Frames(len(group)), library[f"g{number}"]
        called.argtypes, called.restype = (ctypes.c_void_p,) * 2, None
        calls = [list(function.calls) for function in group]
        for turn in range(max(map(len, calls))):
            rows: list[tuple[Row, ...]] = [one[min(turn, len(one) - 1)] for one in calls]
            given = (one.arguments(chosen) for one, chosen in zip(group, rows, strict=True))
            results = frames.call(called, given)
            for place, (function, chosen) in enumerate(zip(group, rows, strict=True)):
                yield from function.wrong(chosen, results[FRAME * place :][:FRAME])


@pytest.mark.llvm(22)
def test_a_conversion_that_would_be_rounded_twice_is_refused(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "wide.mlir"
    source.write_text(
        "func.func @f(%x: i128) -> bf16 {\n"
        "  %r = arith.sitofp %x : i128 to bf16\n  return %r : bf16\n}\n"
    )
    words = (*mlir_offload, "--offload-arch=host", "-g", "-c", str(source), "-o", "wide.o")
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "wide.mlir:2:" in done.stderr
    assert "a conversion of i128 to bfloat is not supported on the CPU" in done.stderr
