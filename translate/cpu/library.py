"""Replacements of library functions: libdevice, CUDA's printf and assertions, libm and libc."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from msgspec import Struct

from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.arithmetic import find_arithmetic
from mlir_offload.translate.cpu.replacement import (
    Replacement,
    define,
    libm_type,
    load_calls,
    scalar,
)

_PURE = "nocallback nofree nosync nounwind speculatable willreturn memory(none)"
_CLASSIFY = {
    "isnan": "%r = fcmp uno T %a, %a",
    "isinf": "%s = call T @llvm.fabs.M(T %a)\n  %r = fcmp oeq T %s, 0x7FF0000000000000",
    "finite": "%s = call T @llvm.fabs.M(T %a)\n  %r = fcmp one T %s, 0x7FF0000000000000",
    "isfinite": "%s = call T @llvm.fabs.M(T %a)\n  %r = fcmp one T %s, 0x7FF0000000000000",
}

# LLVM lowers these intrinsics to instructions, never to calls.
_INSTRUCTIONS = frozenset(("copysign", "fabs", "sqrt"))
# The float nearest to pi; LLVM IR spells a float by the bits of a double.
_PI = "0x400921FB60000000"
_REST_OF_TURN = """%h = fmul T %a, 5.000000e-01
  %w = call T @llvm.rint.M(T %h)
  %t = fmul T %w, 2.000000e+00
  %x = fsub T %a, %t
  %z = call T @llvm.fabs.M(T %x)"""
_OWN = {
    "rsqrt": "%s = call T @llvm.sqrt.M(T %a)\n  %r = fdiv T 1.000000e+00, %s",
    "powi": "%n = sitofp i32 %b to T\n  %r = call T @llvm.pow.M(T %a, T %n)",
    # The reduction of the argument to -1 to 1 is exact. Above 1/2, sin(pi z) = sin(pi (1 - z)).
    "sinpi": f"""{_REST_OF_TURN}
  %l = fsub T 1.000000e+00, %z
  %o = fcmp ogt T %z, 5.000000e-01
  %n = select i1 %o, T %l, T %z
  %i = fcmp oeq T %x, 0.000000e+00
  %y = select i1 %i, T %a, T %x
  %s = call T @llvm.copysign.M(T %n, T %y)
  %m = fmul T %s, {_PI}
  %r = call T @llvm.sin.M(T %m)""",
    "cospi": f"""{_REST_OF_TURN}
  %n = fsub T 5.000000e-01, %z
  %m = fmul T %n, {_PI}
  %r = call T @llvm.sin.M(T %m)""",
}
_LETTERS = {"double": "d", "float": "f", "int": "i", "uint": "ui", "ll": "ll", "ull": "ull"}
_ROUNDINGS = {"rn": "rn", "rz": "rz", "rd": "rm", "ru": "rp"}
_ROUNDED = ir_pattern(
    "`type:d|f``operation:add|sub|mul|div|rcp|sqrt|ma``single:f?``(`_ieee`)?`_`round:rn|rz|rd|ru`"
)
_CONVERTED = ir_pattern(
    "`from:double|float|int|uint|ll|ull`2`to:double|float|int|uint|ll|ull`_`round:rn|rz|rd|ru`"
)


def find_library_function(name: str) -> Replacement | None:
    """Return the replacement of a library function; None for another name."""
    return _cuda_library().get(name) or _libdevice(name) or _external(name)


def _libdevice(name: str) -> Replacement | None:
    if not name.startswith("__nv_"):
        return None
    renamed = load_calls().libdevice.get(name, name.removeprefix("__nv_"))
    if libm_type(renamed) is not None or renamed in load_calls().external:
        return Replacement(renamed, takes_context=False)
    return _own_libdevice(name, renamed) or find_arithmetic(_nvvm_name(renamed))


def _nvvm_name(bare: str) -> str:
    """Return the NVVM name of libdevice arithmetic with a rounding mode: `dadd_rz`, `float2int_rd`.

    Other names are returned unchanged.
    """
    if match := _ROUNDED.fullmatch(bare):
        rounding = _ROUNDINGS[match["round"]]
        if match["operation"] != "ma":
            return f"{match['operation']}.{rounding}.{match['type']}"
        return f"fma.{rounding}.{match['single'] or 'd'}"
    if match := _CONVERTED.fullmatch(bare):
        from_, to = _LETTERS[match["from"]], _LETTERS[match["to"]]
        return f"{from_}2{to}.{_ROUNDINGS[match['round']]}"
    return bare


def _own_libdevice(name: str, bare: str) -> Replacement | None:
    target = f"mo.{name}"
    if bare[:-1] in _CLASSIFY and bare[-1] in "fd":
        type_, mangled = scalar(bare[-1])
        line = _CLASSIFY[bare[:-1]].replace("T", type_).replace(".M", f".{mangled}")
        return Replacement(
            target,
            define(target, "i32", f"{type_} %a", line, "%i = zext i1 %r to i32", "ret i32 %i"),
        )
    if bare.removesuffix("f") in _OWN:
        type_, mangled = scalar("f" if bare.endswith("f") else "d")
        line = _OWN[bare.removesuffix("f")].replace("T", type_).replace(".M", f".{mangled}")
        if type_ == "double":
            line = line.replace(_PI, "0x400921FB54442D18")
        parameters = f"{type_} %a, i32 %b" if "%b" in line else f"{type_} %a"
        return Replacement(target, define(target, type_, parameters, line, f"ret {type_} %r"))
    if bare in {"sincos", "sincosf", "fast_sincosf"}:
        return _sincos(target, "double" if bare == "sincos" else "float")
    if bare == "abs":
        line = "%r = call i32 @llvm.abs.i32(i32 %a, i1 false)"
        return Replacement(target, define(target, "i32", "i32 %a", line, "ret i32 %r"))
    return None


def _sincos(target: str, type_: str) -> Replacement:
    mangled = "f64" if type_ == "double" else "f32"
    return Replacement(
        target,
        define(
            target,
            "void",
            f"{type_} %a, ptr %s, ptr %k",
            f"%x = call {type_} @llvm.sin.{mangled}({type_} %a)",
            f"%y = call {type_} @llvm.cos.{mangled}({type_} %a)",
            f"store {type_} %x, ptr %s",
            f"store {type_} %y, ptr %k",
            "ret void",
        ),
    )


def _external(name: str) -> Replacement | None:
    if libm_type(name) is None and name not in load_calls().external:
        return None
    return Replacement(name, takes_context=False)


def libm_attributes(name: str) -> str:
    """Return the attributes with which LLVM can vectorize predicated calls of a libm function."""
    return _PURE if libm_type(name) is not None else ""


def c_function(intrinsic: str) -> str:
    """Return the libm function that LLVM may call for an intrinsic; empty if there is none."""
    _, name, *types = *intrinsic.split("."), ""
    is_float = types[0].endswith("f32")
    is_called = name in load_calls().libm and name not in _INSTRUCTIONS
    return f"{name}f" if is_called and is_float else name if is_called else ""


def c_functions(replacement: Replacement) -> Iterator[str]:
    """Yield the libm and libc functions that a replacement calls."""
    if not replacement.definition:
        yield replacement.name
    for text in replacement.definition.split("@llvm.")[1:]:
        yield c_function(f"llvm.{text.partition('(')[0]}")


class VectorForms(Struct, frozen=True):
    """The vector variants of a libm function.

    `attribute` is for the declaration of the libm function and names the variants. `definitions` are the variants
    by name. They call the function of cpu_math.c in `declaration`.
    """

    attribute: str
    declaration: str
    definitions: dict[str, str]


def vector_forms(name: str) -> VectorForms | None:
    """Return the vector variants of a libm function; None if cpu_math.c has none."""
    type_ = libm_type(name)
    if (
        type_ is None
        or name.removesuffix("f" if type_ == "float" else "") not in load_calls().vectorized
    ):
        return None
    definitions, mapped = {}, []
    for lanes in (4, 8, 16) if type_ == "float" else (2, 4, 8):
        target = f"mo_cpu_{name}_{lanes}"
        definitions[target] = _vector_form(name, target, f"<{lanes} x {type_}>", lanes)
        mapped.append(f"_ZGV_LLVM_N{lanes}v_{name}({target})")
    attribute = f'"vector-function-abi-variant"="{",".join(mapped)}"'
    return VectorForms(attribute, f"declare void @mo_cpu_{name}(ptr, i32)", definitions)


def _vector_form(name: str, target: str, vector: str, lanes: int) -> str:
    """Return a variant that passes the vector in memory to a function of cpu_math.c.

    For vectors wider than a register, the C calling convention differs from LLVM's.
    """
    lines = (
        f"%numbers = alloca {vector}, align 64",
        f"store {vector} %x, ptr %numbers, align 64",
        f"call void @mo_cpu_{name}(ptr %numbers, i32 {lanes})",
        f"%result = load {vector}, ptr %numbers, align 64",
        f"ret {vector} %result",
    )
    body = "\n".join(f"  {line}" for line in lines)
    return f"define internal {vector} @{target}({vector} %x) nounwind {{\n{body}\n}}"


@cache
def _cuda_library() -> dict[str, Replacement]:
    return {
        "vprintf": Replacement("mo_cpu_vprintf", takes_context=False),
        "__assertfail": Replacement("mo_cpu_assertfail"),
    }
