"""Libraries that device code calls: libdevice, CUDA's printf and assertions, libm and libc."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from msgspec import Struct

from mlir_offload.translate.cpu.replacement import Replacement, define, load_calls, scalar

_PURE = "nocallback nofree nosync nounwind speculatable willreturn memory(none)"
_CLASSIFY = {
    "isnan": "%r = fcmp uno T %a, %a",
    "isinf": "%s = call T @llvm.fabs.M(T %a)\n  %r = fcmp oeq T %s, 0x7FF0000000000000",
    "finite": "%s = call T @llvm.fabs.M(T %a)\n  %r = fcmp one T %s, 0x7FF0000000000000",
    "isfinite": "%s = call T @llvm.fabs.M(T %a)\n  %r = fcmp one T %s, 0x7FF0000000000000",
}

# Never calls.
_INSTRUCTIONS = frozenset(("copysign", "fabs", "sqrt"))
_OWN = {
    "rsqrt": "%s = call T @llvm.sqrt.M(T %a)\n  %r = fdiv T 1.000000e+00, %s",
    "powi": "%n = sitofp i32 %b to T\n  %r = call T @llvm.pow.M(T %a, T %n)",
}


def find_library_function(name: str) -> Replacement | None:
    """Return what represents a function of a library."""
    return _cuda_library().get(name) or _libdevice(name) or _external(name)


def _libdevice(name: str) -> Replacement | None:
    if not name.startswith("__nv_"):
        return None
    renamed = load_calls().libdevice.get(name, name.removeprefix("__nv_"))
    if _libm_type(renamed) is not None:
        return Replacement(renamed, takes_context=False)
    return _own_libdevice(name, renamed)


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


def _libm_type(name: str) -> str | None:
    names = load_calls().libm
    if name in names:
        return "double"
    return "float" if name.endswith("f") and name[:-1] in names else None


def _external(name: str) -> Replacement | None:
    if _libm_type(name) is None and name not in load_calls().external:
        return None
    return Replacement(name, takes_context=False)


def libm_attributes(name: str) -> str:
    """Return the attributes with which a libm function can be vectorised under a predicate."""
    return _PURE if _libm_type(name) is not None else ""


def c_function(intrinsic: str) -> str:
    """Return the function of libm that LLVM may call for an intrinsic; empty if there is none."""
    _, name, *types = *intrinsic.split("."), ""
    is_float = types[0].endswith("f32")
    is_called = name in load_calls().libm and name not in _INSTRUCTIONS
    return f"{name}f" if is_called and is_float else name if is_called else ""


def c_functions(replacement: Replacement) -> Iterator[str]:
    """Return the functions of libm and libc that a replacement calls."""
    if not replacement.definition:
        yield replacement.name
    for text in replacement.definition.split("@llvm.")[1:]:
        yield c_function(f"llvm.{text.partition('(')[0]}")


class VectorForms(Struct, frozen=True):
    """What lets LLVM vectorize calls of a function of libm: an attribute of its declaration.

    `definitions` are the functions that the attribute names, by name, `declaration` the one of cpu_math.c
    that they call.
    """

    attribute: str
    declaration: str
    definitions: dict[str, str]


def vector_forms(name: str) -> VectorForms | None:
    """Return how LLVM calls a function for several lanes; None where it knows that, or there is no way."""
    type_ = _libm_type(name)
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
    """Call a function of cpu_math.c: C has another ABI than LLVM for vectors wider than a register."""
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
