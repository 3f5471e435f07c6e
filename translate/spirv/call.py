"""The SPIR-V replacements of NVVM intrinsics, libdevice functions and atomics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.pattern import ir_any, ir_pattern
from mlir_offload.toolchain.tables import load_table
from mlir_offload.translate.spirv.pointer import GENERIC

_INTRINSIC = "llvm.nvvm."
_AXES = "xyz"
PURE = "nounwind willreturn memory(none)"
_MANGLED = {"float": "f", "double": "d", "i32": "i", "i64": "l", "half": "Dh"}
_SHUFFLED = {"float": "f", "i32": "j"}
_LANE = "_Z22get_sub_group_local_idv"
# The source lane of each mode of llvm.nvvm.shfl.sync (PTX ISA, shfl.sync), and the condition that it exists.
# %n is the first lane of the segment, %m the last.
_SHUFFLES = {
    "idx": ("%o = xor i32 %g, -1\n  %q = and i32 %b, %o\n  %j = or i32 %n, %q", "sle"),
    "up": ("%j = sub i32 %l, %b", "sge"),
    "down": ("%j = add i32 %l, %b", "sle"),
    "bfly": ("%j = xor i32 %l, %b", "sle"),
}
_ATOMICS = {
    "fadd": "%s = fadd T %f, %v",
    "fsub": "%s = fsub T %f, %v",
    "fmax": "%s = call T @llvm.maxnum.M(T %f, T %v)",
    "fmin": "%s = call T @llvm.minnum.M(T %f, T %v)",
    "fmaximum": "%s = call spir_func T @mo.maximum.M(T %f, T %v)",
    "fminimum": "%s = call spir_func T @mo.minimum.M(T %f, T %v)",
}
_EXTREMUM = ir_pattern("@mo.`name:dotted`(")
_REGISTER = ir_pattern("read.ptx.sreg.`register:word`.`axis:x|y|z`")
_SHUFFLE = ir_pattern("shfl.sync.`mode:idx|up|down|bfly`.`type:i32|f32``p:p?`")
_FLOAT = ir_any(("float", "double", "half"))
_TYPE = ir_pattern("T")
_ATOMIC_BITS = {"float": ("i32", "f32"), "double": ("i64", "f64")}


class SpirvFunction(Struct, frozen=True):
    """A function: its symbol, its definition or declaration, and the functions that it calls.

    `uses_subgroup`: it requires the subgroup size that the program assumes.
    """

    symbol: str
    text: str
    needs: tuple[SpirvFunction, ...] = ()
    uses_subgroup: bool = False


def find_spirv_function(
    name: str, result: str, parameters: tuple[str, ...]
) -> SpirvFunction | None:
    """Return the replacement of a function with this name and these types, None if there is none."""
    if name.startswith("__nv_"):
        return _math(name.removeprefix("__nv_"), result, parameters)
    if name.startswith(("llvm.maximum.", "llvm.minimum.")):
        return _ordered_extremum(name.removeprefix("llvm."), result)
    if not name.startswith(_INTRINSIC):
        return None
    bare = name.removeprefix(_INTRINSIC)
    return _register(bare) or _shuffle(bare) or _listed(bare, result, parameters)


def atomic_function(operation: str, kind: str) -> SpirvFunction | None:
    """Return the replacement of `atomicrmw` on floating-point numbers: a compare-exchange loop.

    The back end supports the instructions only in extensions, which the linker wrapper does not enable.
    """
    if operation not in _ATOMICS or kind not in _ATOMIC_BITS:
        return None
    bits, mangled = _ATOMIC_BITS[kind]
    line = _ATOMICS[operation].replace(".M", f".{mangled}").replace("T ", f"{kind} ")
    extremum = _EXTREMUM.search(line)
    needs = (_ordered_extremum(extremum[1], kind),) if extremum else ()
    symbol = f"mo.atomic.{operation}.{mangled}"
    body = f"""\
  %i = load atomic {bits}, {GENERIC} %p monotonic, align {int(bits[1:]) // 8}
  br label %again
again:
  %e = phi {bits} [ %i, %entry ], [ %o, %again ]
  %f = bitcast {bits} %e to {kind}
  {line}
  %b = bitcast {kind} %s to {bits}
  %x = cmpxchg {GENERIC} %p, {bits} %e, {bits} %b acq_rel acquire
  %o = extractvalue {{ {bits}, i1 }} %x, 0
  %k = extractvalue {{ {bits}, i1 }} %x, 1
  br i1 %k, label %done, label %again
done:
  ret {kind} %f"""
    head = f"define internal spir_func {kind} @{symbol}({GENERIC} %p, {kind} %v)"
    return SpirvFunction(symbol, f"{head} alwaysinline nounwind {{\nentry:\n{body}\n}}", needs)


def declaration(symbol: str, result: str, parameters: str, attributes: str = "") -> SpirvFunction:
    """Return the declaration of an OpenCL C function."""
    text = f"declare spir_func {result} @{symbol}({parameters}) {attributes}".rstrip()
    return SpirvFunction(symbol, text)


def _define(
    symbol: str, result: str, parameters: str, *lines: str, needs: tuple[SpirvFunction, ...] = ()
) -> SpirvFunction:
    body = "\n".join(f"  {line}" for line in lines)
    # Inlined before other optimizations, so that its callers determine whether it is convergent.
    head = f"define internal spir_func {result} @{symbol}({parameters})"
    return SpirvFunction(symbol, f"{head} convergent alwaysinline nounwind {{\n{body}\n}}", needs)


def _register(name: str) -> SpirvFunction | None:
    match = _REGISTER.fullmatch(name)
    function = _table()["registers"].get(match[1]) if match else None
    if match is None or function is None:
        return None
    return _define(
        f"mo.{name}",
        "i32",
        "",
        f"%s = call spir_func i64 @{function}(i32 {_AXES.index(match[2])})",
        "%r = trunc i64 %s to i32",
        "ret i32 %r",
        needs=(declaration(function, "i64", "i32", PURE),),
    )


def _listed(name: str, result: str, parameters: tuple[str, ...]) -> SpirvFunction | None:
    row: Mapping[str, Any] | None = _table()["intrinsics"].get(name)
    if row is None:
        return None
    needs = tuple(_called(text) for text in row.get("calls", ()))
    listed = ", ".join(f"{kind} %p{index}" for index, kind in enumerate(parameters))
    made = _define(f"mo.{name}", result, listed, *row["body"], needs=needs)
    return SpirvFunction(made.symbol, made.text, needs, bool(row.get("subgroup")))


def _called(text: str) -> SpirvFunction:
    result, _, rest = text.partition(" @")
    symbol, _, parameters = rest.rstrip(")").partition("(")
    return declaration(symbol, result, parameters, "convergent nounwind")


def _shuffle(name: str) -> SpirvFunction | None:
    match = _SHUFFLE.fullmatch(name)
    if match is None:
        return None
    kind = "float" if match[2] == "f32" else "i32"
    source, order = _SHUFFLES[match[1]]
    function = f"_Z17sub_group_shuffle{_SHUFFLED[kind]}j"
    result = f"{{ {kind}, i1 }}" if match[3] else kind
    lines = [
        f"%l = call spir_func i32 @{_LANE}()",
        "%h = lshr i32 %c, 8",
        "%g = and i32 %h, 31",
        "%n = and i32 %l, %g",
        "%i = xor i32 %g, 31",
        "%t = and i32 %c, %i",
        "%m = or i32 %n, %t",
        source,
        f"%k = icmp {order} i32 %j, %m",
        "%w = select i1 %k, i32 %j, i32 %l",
        f"%r = call spir_func {kind} @{function}({kind} %v, i32 %w) convergent",
    ]
    if match[3]:
        lines += [
            f"%x = insertvalue {result} poison, {kind} %r, 0",
            f"%y = insertvalue {result} %x, i1 %k, 1",
        ]
    lines.append(f"ret {result} {'%y' if match[3] else '%r'}")
    made = _define(f"mo.{name}", result, f"i32 %a, {kind} %v, i32 %b, i32 %c", *lines)
    needs = (
        declaration(_LANE, "i32", "", "convergent nounwind"),
        declaration(function, kind, f"{kind}, i32", "convergent nounwind"),
    )
    return SpirvFunction(made.symbol, made.text, needs, uses_subgroup=True)


def _ordered_extremum(name: str, kind: str) -> SpirvFunction:
    """Return maximum or minimum of IEEE 754-2019, because the back end uses OpenCL's fmax, which drops NaN."""
    operation, _, mangled = name.partition(".")
    compared = _FLOAT.sub("i1", kind)
    is_largest = operation == "maximum"
    # The sum of two zeros is the larger one: -0 only if both are -0.
    zero = (
        ("%z = fadd T %a, %b",)
        if is_largest
        else ("%na = fneg T %a", "%nb = fneg T %b", "%ns = fadd T %na, %nb", "%z = fneg T %ns")
    )
    lines = (
        "%u = fcmp uno T %a, %b",
        "%s = fadd T %a, %b",
        f"%m = call T @llvm.{'maxnum' if is_largest else 'minnum'}.{mangled}(T %a, T %b)",
        *zero,
        "%za = fcmp oeq T %a, zeroinitializer",
        "%zb = fcmp oeq T %b, zeroinitializer",
        f"%zz = and {compared} %za, %zb",
        f"%n = select {compared} %zz, T %z, T %m",
        f"%r = select {compared} %u, T %s, T %n",
        "ret T %r",
    )
    typed = [_TYPE.sub(kind, line) for line in lines]
    return _define(f"mo.{name}", kind, f"{kind} %a, {kind} %b", *typed)


def _math(name: str, result: str, parameters: tuple[str, ...]) -> SpirvFunction | None:
    table = _table()
    is_float = "float" in (result, *parameters)
    base = name[:-1] if is_float and name.endswith("f") else name.removesuffix("d")
    base = base if base in table["renamed"] or base in table["math"] else name
    called = table["renamed"].get(base, base)
    if base.removesuffix("f") in {"sincos", "fast_sincos"}:
        return _sincos(parameters[0])
    if called not in table["math"] or not all(kind in _MANGLED for kind in parameters):
        return None
    symbol = f"_Z{len(called)}{called}{''.join(map(_MANGLED.__getitem__, parameters))}"
    return declaration(symbol, result, ", ".join(parameters), PURE)


def _sincos(kind: str) -> SpirvFunction:
    letter = _MANGLED[kind]
    sine, cosine = (declaration(f"_Z3{name}{letter}", kind, kind, PURE) for name in ("sin", "cos"))
    return _define(
        f"mo.sincos.{letter}",
        "void",
        f"{kind} %a, {GENERIC} %s, {GENERIC} %c",
        f"%x = call spir_func {kind} @{sine.symbol}({kind} %a)",
        f"%y = call spir_func {kind} @{cosine.symbol}({kind} %a)",
        f"store {kind} %x, {GENERIC} %s",
        f"store {kind} %y, {GENERIC} %c",
        "ret void",
        needs=(sine, cosine),
    )


def spirv_operations() -> frozenset[str]:
    """Return the operations of the NVVM dialect that have a replacement."""
    return frozenset(_table()["operations"])


def spirv_layout(llvm_major: int) -> str:
    """Return the data layout of 64-bit SPIR-V in a release of LLVM."""
    rows = [row for row in _table()["layouts"] if row["since"] <= llvm_major]
    return str((rows or _table()["layouts"][:1])[-1]["layout"])


@cache
def _table() -> Mapping[str, Any]:
    return load_table("mlir_offload.translate", "spirv")
