"""Arithmetic of NVVM and PTX on the CPU against rational numbers that are rounded as the PTX ISA says."""

from __future__ import annotations

import ctypes
import math
import random
import re
import struct
import subprocess
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import pytest
from support.binary_format import BF16, F16, F32, F64, Format

from mlir_offload.translate.cpu.asynchronous import asm_call
from mlir_offload.translate.cpu.bfloat import without_bfloat
from mlir_offload.translate.cpu.intrinsics import find_replacement
from mlir_offload.translate.cpu.text import DeviceModule

CLANG = "/usr/lib/llvm-22/bin/clang"
pytestmark = pytest.mark.llvm(22)


FORMATS = {"f": F32, "d": F64}
CTYPES = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    **{f"i{bits}": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
}
ROUNDINGS = ("rn", "rz", "rm", "rp")
EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
    "rcp": lambda a: 1 / a,
}
SHORT = ("asm.fma.rn.f16", "asm.fma.rn.bf16", "asm.fma.rn.sat.f16", "asm.fma.rn.relu.bf16")
OTHERS = (
    *("fmin.f", "fmax.f", "fmin.nan.f", "fmax.ftz.nan.f", "saturate.f", "saturate.ftz.f", "prmt"),
    *("mulhi.i", "mulhi.ui", "mulhi.ll", "mulhi.ull", "sad.i", "lohi.i2d", "d2i.hi", "d2i.lo"),
    *("asm.cvt.rz.f16.f32", "asm.cvt.rm.f16.f32", "asm.cvt.rp.f16.f32", "asm.set.neu.u32.f16x2"),
    *("asm.cvt.rz.f16.s64", "asm.cvt.rzi.u8.f16", "asm.cvt.rn.bf16.u64", "fabs.f32", "asm.mul.128"),
)
LIBDEVICE = tuple(
    f"__nv_{name}"
    for name in (
        *("sinpi", "cospi", "sinpif", "cospif", "clzll", "ffs", "ffsll", "popcll", "brev", "rhadd"),
        *("hiloint2double", "signbitf", "fmaf_ieee_rd", "dsub_ru", "double2uint_rd", "half2float"),
    )
)
ROUNDED = [
    f"{operation}.{rounding}{flush}.{kind}"
    for operation, rounding, (flush, kind) in product(
        (*EXACT, "sqrt"), ROUNDINGS, (("", "f"), (".ftz", "f"), ("", "d"))
    )
]
INTEGERS = {"i": (32, True), "ui": (32, False), "ll": (64, True), "ull": (64, False)}
TO_INTEGER = [f"{a}2{b}.{r}" for a, b, r in product("fd", INTEGERS, ROUNDINGS)] + ["f2i.rp.ftz"]
FROM_INTEGER = [f"{a}2{b}.{r}" for a, b, r in product(INTEGERS, "fd", ROUNDINGS)]
NARROWING = [f"d2f.{r}{flush}" for r, flush in product(ROUNDINGS, ("", ".ftz"))]
TOWARD: dict[str, Callable[[float], int]] = {
    "rn": lambda value: round(value),  # noqa: PLW0108 (round itself has several types)
    "rz": math.trunc,
    "rm": math.floor,
    "rp": math.ceil,
}
TINY, LARGE = 2.0**-149, (2 - 2.0**-23) * 2.0**127
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.5,
    3 + 2.0**-20,
    -7.0,
    2.0**-126,
    TINY,
    -3 * TINY,
    1 + 2.0**-23,
    LARGE,
    -LARGE,
)


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., int | float]:
    """Return a function that calls one of NVVM by its name."""
    names = [*ROUNDED, *TO_INTEGER, *FROM_INTEGER, *NARROWING, *SHORT, *OTHERS, *LIBDEVICE]
    texts: dict[str, str] = {}
    signatures = {}
    for number, name in enumerate(names):
        found = find_replacement(name if name.startswith("__nv_") else f"llvm.nvvm.{name}")
        assert found is not None, name
        texts |= {found.name: found.definition, **dict(found.called)}
        head = re.match(
            r"define internal (.*) @\S+\(ptr %c(?:, )?(.*)\) alwaysinline", found.definition
        )
        assert head is not None
        result, parameters = head.groups()
        value = f"  %r = call {result} @{found.name}(ptr null, {parameters})\n  ret {result} %r"
        texts[f"f{number}"] = f"define {result} @f{number}({parameters}) {{\n{value}\n}}"
        types = [CTYPES[parameter.split()[0]] for parameter in parameters.split(", ")]
        signatures[name] = (f"f{number}", CTYPES.get(result, Pair), types)
    folder = tmp_path_factory.mktemp("arithmetic")
    source, library = folder / "a.ll", folder / "a.so"
    _, defined = without_bfloat(DeviceModule((), (), (), (), ()), tuple(texts.items()))
    source.write_text("\n".join(dict(defined).values()))
    options = ("-w", "-O2", "-march=x86-64", "-shared", "-fPIC", "-lm")
    subprocess.run([CLANG, source, *options, "-o", library], check=True)
    loaded = ctypes.CDLL(str(library))
    functions = {}
    for name, (symbol, result, types) in signatures.items():
        functions[name] = getattr(loaded, symbol)
        functions[name].restype, functions[name].argtypes = result, types
    return lambda name, *values: functions[name](*values)


class Pair(ctypes.Structure):
    _fields_ = (("low", ctypes.c_uint64), ("high", ctypes.c_uint64))


def same(found: float, wanted: float) -> bool:
    if math.isnan(wanted):
        return math.isnan(found)
    return found == wanted and math.copysign(1, found) == math.copysign(1, wanted)


@pytest.mark.parametrize("name", ROUNDED)
def test_results_are_rounded_once_and_in_the_direction(
    call: Callable[..., float], name: str
) -> None:
    operation, mode, *flush, kind = name.split(".")
    form = FORMATS[kind]
    count = {"fma": 3, "rcp": 1, "sqrt": 1}.get(operation, 2)
    chosen = random.Random(name)  # noqa: S311 (not for secrets)
    values = chosen.sample(list(product(FLOATS, repeat=count)), min(12**count, 150))
    for given in values:
        operands = [form.flushed(value) for value in given] if flush else list(given)
        if operation in {"div", "rcp"} and operands[-1] == 0:
            continue
        if operation == "sqrt":
            if operands[0] <= 0:
                continue
            root, scale = operands[0], Fraction(2) ** 400
            exact = Fraction(math.isqrt(int(Fraction(root) * scale * scale))) / scale
            if exact * exact != root:
                exact += 1 / (2 * scale)
        else:
            exact = EXACT[operation](*map(Fraction, operands))
        wanted = form.rounded(exact, mode, zero_of(operation, operands, mode))
        wanted = form.flushed(wanted) if flush else wanted
        assert same(call(name, *given), wanted), (given, call(name, *given), wanted)


def zero_of(operation: str, operands: list[float], mode: str) -> float:
    """Return the zero with the sign that an exact result of zero has (IEEE 754-2019, 6.3)."""
    if operation in {"mul", "div"}:
        return math.copysign(0.0, math.copysign(1, operands[0]) * math.copysign(1, operands[1]))
    terms = operands
    if operation == "fma":
        terms = [zero_of("mul", operands[:2], mode), operands[2]]
        if operands[0] and operands[1]:
            return -0.0 if mode == "rm" else 0.0
    signs = {math.copysign(1, term) for term in terms}
    if not any(terms) and len(signs) == 1:
        return math.copysign(0.0, signs.pop())
    return -0.0 if mode == "rm" else 0.0


@pytest.mark.parametrize("name", TO_INTEGER)
def test_integers_are_limited_and_nan_has_the_number_of_ptx(
    call: Callable[..., int], name: str
) -> None:
    source, target, mode = re.findall(r"^(\w)2(\w+)\.(\w\w)", name)[0]
    bits, is_signed = INTEGERS[target]
    least, largest = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    toward = TOWARD[mode]
    for value in (*FLOATS, 0.5, 1.5, 2.5, -0.5, 3e9, -3e9, 1e19, -1e19):
        given = FORMATS[source].rounded(Fraction(value), "rz", value)
        number = F32.flushed(given) if "ftz" in name else given
        wanted = min(max(toward(number), least), largest)
        assert call(name, given) == wanted % (1 << bits), given
    nan = 1 << bits - 1 if source == "d" or bits == 64 else 0
    assert call(name, math.nan) == nan
    assert call(name, math.inf) == largest
    assert call(name, -math.inf) == least % (1 << bits)


@pytest.mark.parametrize("name", FROM_INTEGER)
def test_integers_of_all_sizes_are_rounded_once(call: Callable[..., float], name: str) -> None:
    source, target, mode = re.findall(r"^(\w+)2(\w)\.(\w\w)", name)[0]
    bits, is_signed = INTEGERS[source]
    ones = [(1 << width) + extra for width in range(1, bits) for extra in (-1, 0, 1)]
    ties = [(1 << 62) + (1 << 38), (1 << 62) + (1 << 38) + 1, (1 << 63) + (1 << 39) + 1, 0]
    for value in (*ones, *ties, *[-one for one in ones]):
        number = value % (1 << bits)
        if is_signed and number >> (bits - 1):
            number -= 1 << bits
        wanted = FORMATS[target].rounded(Fraction(number), mode)
        assert same(call(name, value % (1 << bits)), wanted), value


@pytest.mark.parametrize("name", NARROWING)
def test_doubles_become_floats_in_the_direction(call: Callable[..., float], name: str) -> None:
    for value in (0.1, -0.1, 1e300, -1e300, 1e-300, -1e-300, 2.0**-127, 1 + 2.0**-24, -0.0):
        wanted = F32.rounded(Fraction(value), name.split(".")[1], value)
        wanted = F32.flushed(wanted) if "ftz" in name else wanted
        assert same(call(name, value), wanted), value


def bits_of(value: float, form: Format) -> int:
    if form is BF16:
        return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16
    return int(struct.unpack("<H", struct.pack("<e", value))[0])


@pytest.mark.parametrize("name", SHORT)
def test_products_and_sums_of_16_bits_are_rounded_once(call: Callable[..., int], name: str) -> None:
    form = BF16 if name.endswith("bf16") else F16
    chosen = random.Random(name)  # noqa: S311 (not for secrets)

    def number() -> float:
        digits = chosen.randrange(1 << form.digits - 1, 1 << form.digits)
        exponent = chosen.randrange(-6, 6) if chosen.randrange(4) else form.least + 2
        return chosen.choice((-1.0, 1.0)) * digits * 2.0**exponent

    # Products in the middle of two numbers, and sums that f32 or f64 would round to them.
    factor, rest = (87.0, 2.0**-100) if form is BF16 else (683.0, 2.0**-24)
    operands = [[3.0, factor, rest], [3.0, factor, -rest]]
    operands += [[form.rounded(Fraction(number()), "rz") for _ in "abc"] for _ in range(3000)]
    for a, b, c in operands:
        wanted = form.rounded(Fraction(a) * Fraction(b) + Fraction(c), "rn")
        if ".sat" in name:
            wanted = min(max(wanted, 0.0), 1.0)
        if ".relu" in name:
            wanted = max(wanted, 0.0)
        found = call(name, *(bits_of(value, form) for value in (a, b, c)))
        assert found == bits_of(wanted, form), (a, b, c)


def test_nan_zeros_words_and_bytes(call: Callable[..., int | float]) -> None:
    nan, inf = math.nan, math.inf
    for name, operands, wanted in (
        ("fmin.f", (0.0, -0.0), -0.0),
        ("fmin.f", (-0.0, 0.0), -0.0),
        ("fmax.f", (-0.0, 0.0), 0.0),
        ("fmax.f", (0.0, -0.0), 0.0),
        ("fmin.f", (nan, 2.0), 2.0),
        ("fmax.f", (2.0, nan), 2.0),
        ("fmax.f", (nan, nan), nan),
        ("fmin.nan.f", (nan, 2.0), nan),
        ("fmax.ftz.nan.f", (TINY, -1.0), 0.0),
        ("saturate.f", (nan,), 0.0),
        ("saturate.f", (-0.0,), 0.0),
        ("saturate.f", (inf,), 1.0),
        ("saturate.f", (TINY,), TINY),
        ("saturate.ftz.f", (TINY,), 0.0),
        ("fabs.f32", (-2.5,), 2.5),
        ("lohi.i2d", (0x54442D18, 0x400921FB), math.pi),
        ("d2i.lo", (math.pi,), 0x54442D18),
        ("d2i.hi", (math.pi,), 0x400921FB),
        ("prmt", (0x33221100, 0x776655F4, 0x3CC4), 0x33FFFFF4),
        ("mulhi.i", (0xFFFFFFFE, 3), 0xFFFFFFFF),
        ("mulhi.ui", (0xFFFFFFFE, 3), 2),
        ("mulhi.ll", (2**64 - 2, 3), 2**64 - 1),
        ("mulhi.ull", (2**64 - 2, 3), 2),
        ("sad.i", (2**32 - 5, 7, 100), 112),
        ("asm.cvt.rz.f16.f32", (1e6,), 0x7BFF),
        ("asm.cvt.rm.f16.f32", (-1e6,), 0xFC00),
        ("asm.cvt.rp.f16.f32", (1e-9,), 1),
        ("asm.cvt.rm.f16.f32", (-1e-9,), 0x8001),
        ("asm.cvt.rz.f16.f32", (1 + 2.0**-11 + 2.0**-12,), 0x3C00),
        ("asm.cvt.rz.f16.s64", (2**64 - 4099,), 0xEC00),
        ("asm.cvt.rn.bf16.u64", (2**40 + 2**32 + 1,), bits_of(2.0**40 + 2.0**33, BF16)),
        ("asm.cvt.rzi.u8.f16", (bits_of(300.0, F16),), 255),
        ("asm.set.neu.u32.f16x2", (0x7E003C00, 0x3C003C00), 0xFFFF0000),
        ("__nv_sinpi", (-0.0,), -0.0),
        ("__nv_sinpi", (-2.5,), -1.0),
        ("__nv_sinpi", (1e15 + 0.5,), 1.0),
        ("__nv_cospi", (0.5,), 0.0),
        ("__nv_cospi", (-7.0,), -1.0),
        ("__nv_sinpif", (3.5,), -1.0),
        ("__nv_cospif", (2.0**30,), 1.0),
        ("__nv_clzll", (0,), 64),
        ("__nv_ffs", (0,), 0),
        ("__nv_ffsll", (2**40,), 41),
        ("__nv_popcll", (2**64 - 1,), 64),
        ("__nv_brev", (6,), 0x60000000),
        ("__nv_rhadd", (2**32 - 4, 2**32 - 1), 2**32 - 2),
        ("__nv_hiloint2double", (0x400921FB, 0x54442D18), math.pi),
        ("__nv_signbitf", (-0.0,), 1),
        ("__nv_fmaf_ieee_rd", (1.0, 1.0, -TINY), 1 - 2.0**-24),
        ("__nv_dsub_ru", (1.0, -(2.0**-80)), 1 + 2.0**-52),
        ("__nv_double2uint_rd", (-1.0,), 0),
        ("__nv_half2float", (0x3555,), 0.333251953125),
    ):
        found = call(name, *operands)
        assert same(found, wanted), (name, operands, found)
    whole = call("asm.mul.128", 2**64 - 1, 2**63 + 5)
    assert isinstance(whole, Pair)
    assert whole.low + (whole.high << 64) == (2**64 - 1) * (2**63 + 5)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            '  %4 = tail call contract i16 asm "{add.f16 $0,$1,$2;\\0A}", "=h,h,h"(i16 %2, i16 %3)',
            "  %4 = tail call contract i16 @llvm.nvvm.asm.add.f16(i16 %2, i16 %3)",
        ),
        (
            '  %7 = call i32 asm sideeffect "{shfl.sync.up.b32 $0,$1,$2,$3,$4;\\0A}", "=r,r,r,r,r"(i32 %1, i32 1, i32 0, i32 -1) #3',
            "  %7 = call i32 @llvm.nvvm.shfl.sync.up.i32(i32 -1, i32 %1, i32 1, i32 0) #3",
        ),
        # Operands in another order, and of other types.
        ('  %4 = call float asm "sub.rn.f32 $0, $2, $1;", "=f,f,f"(float %2, float %3)', None),
        ('  %4 = call i32 asm "ex2.approx.f32 $0, $1;", "=r,r"(i32 %2)', None),
        ('  %4 = call i32 asm "add.s32 $0, $1, $2;", "=r,r,r"(i32 %2, i32 %3)', None),
    ],
)
def test_inline_assembly_of_one_instruction_is_its_function(line: str, wanted: str | None) -> None:
    assert asm_call(line) == wanted
