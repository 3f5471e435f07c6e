"""NVVM intrinsics, libdevice and CUDA's device library, as LLVM IR for one work-item of the CPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache

from mlir_offload.toolchain.tables import load_table

ITEM_TYPE = (
    "%mo.item = type { [3 x i32], i32, [3 x i32], [3 x i32], [3 x i32], ptr, ptr, ptr, ptr }"
)
_FIELDS = {"tid": 0, "ntid": 2, "ctaid": 3, "nctaid": 4}
_SHUFFLES = ("idx", "up", "down", "bfly")
_VOTES = ("all", "any", "uni", "ballot")
_REDUCTIONS = ("add", "umax", "umin", "max", "min", "and", "or", "xor", "fmax", "fmin")
# The numbers of the enum in offload/runtime/cpu_device.h.
_VOTE, _MATCH_ANY, _MATCH_ALL, _REDUX, _WARP_BARRIER = 4, 8, 9, 10, 20
_CALL_WARP = "call i64 @mo_cpu_warp(ptr %c, i32 %site"
_PURE = "nocallback nofree nosync nounwind speculatable willreturn memory(none)"

RUNTIME_DECLARATIONS = """\
declare void @mo_cpu_launch(ptr, ptr, ptr)
declare void @mo_cpu_run_blocks(ptr, i64, i64)
declare void @mo_cpu_run_fibers(ptr, i64, i64)
declare i32 @mo_cpu_barrier(ptr, i32, i32)
declare i64 @mo_cpu_warp(ptr, i32, i32, i32, i64, i32, i32)
declare i32 @mo_cpu_active_mask(ptr)
declare i32 @mo_cpu_vprintf(ptr, ptr)
declare void @mo_cpu_assertfail(ptr, ptr, ptr, i32) cold noreturn"""


class Sync(Enum):
    """Whom a call waits for."""

    NONE = 0
    BLOCK = 1
    WARP = 2


@dataclass(frozen=True, slots=True)
class Replacement:
    """What stands for a called function: its definition, and what the call passes besides.

    `definition` may be empty (the function comes from libm or libc). A call that waits for the
    warp also passes the number of the call.
    """

    name: str
    definition: str = ""
    sync: Sync = Sync.NONE
    takes_context: bool = True

    @property
    def takes_site(self) -> bool:
        """Say whether the number of the call is the second argument."""
        return "i32 %site" in self.definition

    @property
    def takes_operands(self) -> bool:
        """Say whether the operands of the call stay."""
        return self.sync is not Sync.BLOCK


def _define(name: str, result: str, parameters: str, *lines: str) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    listed = f"ptr %c, {parameters}" if parameters else "ptr %c"
    return f"define internal {result} @{name}({listed}) alwaysinline nounwind {{\n{body}\n}}"


def find_replacement(name: str) -> Replacement | None:
    """Return what stands for a function that device code calls but does not define."""
    known = _cuda_library().get(name) or _libdevice(name) or _external(name)
    if known is not None:
        return known
    if not name.startswith("llvm.nvvm."):
        return None
    aliases = {row["name"]: row["as"] for row in _table()["aliases"]}
    return _nvvm(aliases.get(name, name.removeprefix("llvm.nvvm.")))


def source_name_of(name: str) -> str:
    """Return what the source calls an intrinsic that has no replacement."""
    rows: dict[str, str] = _table()["unsupported"]
    prefixes = [prefix for prefix in rows if name.startswith(prefix)]
    if prefixes:
        return f"{rows[max(prefixes, key=len)]} ({name})"
    return name


@cache
def _table() -> dict[str, object]:  # type: ignore[misc]
    return load_table("mlir_offload.translate", "cpu")


def _nvvm(name: str) -> Replacement | None:
    for build in (_special_register, _shuffle, _vote, _match, _redux, _block_barrier, _plain):
        found = build(name)
        if found is not None:
            return found
    return None


def _special_register(name: str) -> Replacement | None:
    match = re.fullmatch(r"read\.ptx\.sreg\.(\w+?)(?:\.([xyz]))?", name)
    if match is None:
        return None
    register, axis = match[1], match[2]
    target = f"mo.{name}"
    if axis is not None and register in _FIELDS:
        place = f"i32 0, i32 {_FIELDS[register]}, i32 {'xyz'.index(axis)}"
        return Replacement(target, _define(
            target, "i32", "",
            f"%p = getelementptr inbounds %mo.item, ptr %c, {place}",
            "%v = load i32, ptr %p, align 4", "ret i32 %v",
        ))
    lines = _LANE_REGISTERS.get(register)
    if lines is None:
        return None
    return Replacement(target, _define(target, "i32", "", *_LOAD_LINEAR, *lines))


_LOAD_LINEAR = (
    "%p = getelementptr inbounds %mo.item, ptr %c, i32 0, i32 1",
    "%n = load i32, ptr %p, align 4",
    "%l = and i32 %n, 31",
)
_LANE_REGISTERS = {
    "laneid": ("ret i32 %l",),
    "warpid": ("%w = lshr i32 %n, 5", "ret i32 %w"),
    "nwarpid": (
        "%px = getelementptr inbounds %mo.item, ptr %c, i32 0, i32 2, i32 0",
        "%py = getelementptr inbounds %mo.item, ptr %c, i32 0, i32 2, i32 1",
        "%pz = getelementptr inbounds %mo.item, ptr %c, i32 0, i32 2, i32 2",
        "%x = load i32, ptr %px, align 4", "%y = load i32, ptr %py, align 4",
        "%z = load i32, ptr %pz, align 4", "%xy = mul i32 %x, %y", "%xyz = mul i32 %xy, %z",
        "%u = add i32 %xyz, 31", "%w = lshr i32 %u, 5", "ret i32 %w",
    ),
    "warpsize": ("ret i32 32",),
    "smid": ("ret i32 0",),
    "nsmid": ("ret i32 1",),
    "gridid": ("ret i32 0",),
    "lanemask_eq": ("%m = shl i32 1, %l", "ret i32 %m"),
    "lanemask_lt": ("%b = shl i32 1, %l", "%m = sub i32 %b, 1", "ret i32 %m"),
    "lanemask_le": ("%b = shl i32 2, %l", "%m = sub i32 %b, 1", "ret i32 %m"),
    "lanemask_gt": ("%m = shl i32 -2, %l", "ret i32 %m"),
    "lanemask_ge": ("%m = shl i32 -1, %l", "ret i32 %m"),
}


def _shuffle(name: str) -> Replacement | None:
    match = re.fullmatch(r"shfl\.sync\.(idx|up|down|bfly)\.(i32|f32)(p?)", name)
    if match is None:
        return None
    type_ = "float" if match[2] == "f32" else "i32"
    lines = [
        f"%b = bitcast {type_} %v to i32", "%w = zext i32 %b to i64",
        f"%r = {_CALL_WARP}, i32 {_SHUFFLES.index(match[1])}, i32 %m, i64 %w, i32 %d, i32 %s)",
        "%lo = trunc i64 %r to i32", f"%x = bitcast i32 %lo to {type_}",
    ]
    result = type_
    if match[3]:
        result = f"{{ {type_}, i1 }}"
        lines += [
            "%hi = lshr i64 %r, 32", "%p = trunc i64 %hi to i1",
            f"%t = insertvalue {result} poison, {type_} %x, 0",
            f"%u = insertvalue {result} %t, i1 %p, 1", f"ret {result} %u",
        ]
    else:
        lines.append(f"ret {result} %x")
    target = f"mo.{name}"
    parameters = f"i32 %site, i32 %m, {type_} %v, i32 %d, i32 %s"
    return Replacement(target, _define(target, result, parameters, *lines), Sync.WARP)


def _vote(name: str) -> Replacement | None:
    match = re.fullmatch(r"vote\.(all|any|uni|ballot)\.sync", name)
    if match is None:
        return None
    target, result = f"mo.{name}", "i32" if match[1] == "ballot" else "i1"
    return Replacement(target, _define(
        target, result, "i32 %site, i32 %m, i1 %v",
        "%w = zext i1 %v to i64",
        f"%r = {_CALL_WARP}, i32 {_VOTE + _VOTES.index(match[1])}, i32 %m, i64 %w, i32 0, i32 0)",
        f"%x = trunc i64 %r to {result}", f"ret {result} %x",
    ), Sync.WARP)


def _match(name: str) -> Replacement | None:
    match = re.fullmatch(r"match\.(any|all)\.sync\.(i32|i64)(p?)", name)
    if match is None:
        return None
    target = f"mo.{name}"
    operation = _MATCH_ALL if match[1] == "all" else _MATCH_ANY
    widen = "%w = zext i32 %v to i64" if match[2] == "i32" else "%w = add i64 %v, 0"
    lines = [widen, f"%r = {_CALL_WARP}, i32 {operation}, i32 %m, i64 %w, i32 0, i32 0)",
             "%x = trunc i64 %r to i32"]
    if match[3]:
        lines += ["%hi = lshr i64 %r, 32", "%p = trunc i64 %hi to i1",
                  "%t = insertvalue { i32, i1 } poison, i32 %x, 0",
                  "%u = insertvalue { i32, i1 } %t, i1 %p, 1", "ret { i32, i1 } %u"]
    else:
        lines.append("ret i32 %x")
    result = "{ i32, i1 }" if match[3] else "i32"
    definition = _define(target, result, f"i32 %site, i32 %m, {match[2]} %v", *lines)
    return Replacement(target, definition, Sync.WARP)


def _redux(name: str) -> Replacement | None:
    match = re.fullmatch(r"redux\.sync\.(\w+)", name)
    if match is None or match[1] not in _REDUCTIONS:
        return None
    target, type_ = f"mo.{name}", "float" if match[1][0] == "f" else "i32"
    operation = _REDUX + _REDUCTIONS.index(match[1])
    return Replacement(target, _define(
        target, type_, f"i32 %site, {type_} %v, i32 %m",
        f"%b = bitcast {type_} %v to i32", "%w = zext i32 %b to i64",
        f"%r = {_CALL_WARP}, i32 {operation}, i32 %m, i64 %w, i32 0, i32 0)",
        "%lo = trunc i64 %r to i32", f"%x = bitcast i32 %lo to {type_}", f"ret {type_} %x",
    ), Sync.WARP)


def _block_barrier(name: str) -> Replacement | None:
    kinds = {"barrier": 0, "barrier.popc": 1, "barrier.and": 2, "barrier.or": 3}
    if name not in kinds:
        return None
    if name == "barrier":
        # Its operand, the number of the barrier, is dropped: all of the block waits at any of them.
        return Replacement("mo.barrier", _define(
            "mo.barrier", "void", "", "call i32 @mo_cpu_barrier(ptr %c, i32 0, i32 0)", "ret void",
        ), Sync.BLOCK)
    target = f"mo.{name}"
    return Replacement(target, _define(
        target, "i32", "i32 %v",
        f"%r = call i32 @mo_cpu_barrier(ptr %c, i32 {kinds[name]}, i32 %v)", "ret i32 %r",
    ), Sync.WARP)


def _plain(name: str) -> Replacement | None:
    target = f"mo.{name}"
    if name == "bar.warp.sync":
        call = f"{_CALL_WARP}, i32 {_WARP_BARRIER}, i32 %m, i64 0, i32 0, i32 0)"
        return Replacement(
            target, _define(target, "void", "i32 %site, i32 %m", call, "ret void"), Sync.WARP
        )
    if name == "activemask":
        lines = ("%m = call i32 @mo_cpu_active_mask(ptr %c)", "ret i32 %m")
        return Replacement(target, _define(target, "i32", "i32 %site", *lines), Sync.WARP)
    if name == "fence":
        return Replacement(target, _define(target, "void", "", "fence seq_cst", "ret void"))
    return _approximation(name)


_APPROXIMATIONS = {
    "rcp": "%r = fdiv T 1.0, %a",
    "sqrt": "%r = call T @llvm.sqrt.M(T %a)",
    "rsqrt": "%s = call T @llvm.sqrt.M(T %a)\n  %r = fdiv T 1.0, %s",
    "ex2": "%r = call T @llvm.exp2.M(T %a)",
    "lg2": "%r = call T @llvm.log2.M(T %a)",
    "sin": "%r = call T @llvm.sin.M(T %a)",
    "cos": "%r = call T @llvm.cos.M(T %a)",
    "fabs": "%r = call T @llvm.fabs.M(T %a)",
    "floor": "%r = call T @llvm.floor.M(T %a)",
    "ceil": "%r = call T @llvm.ceil.M(T %a)",
    "trunc": "%r = call T @llvm.trunc.M(T %a)",
    "round": "%r = call T @llvm.roundeven.M(T %a)",
}


def _approximation(name: str) -> Replacement | None:
    """NVIDIA's approximate functions; the CPU gives the exact ones."""
    match = re.fullmatch(r"(\w+?)(?:\.(?:approx|rn))?(?:\.ftz)?\.(f|d)", name)
    template = _APPROXIMATIONS.get(match[1]) if match else None
    if match is None or template is None:
        return None
    type_, mangled = ("float", "f32") if match[2] == "f" else ("double", "f64")
    line = template.replace("T", type_).replace(".M", f".{mangled}").replace("1.0", "1.000000e+00")
    return Replacement(f"mo.{name}", _define(f"mo.{name}", type_, f"{type_} %a", line, f"ret {type_} %r"))


@cache
def _cuda_library() -> dict[str, Replacement]:
    return {
        "vprintf": Replacement("mo_cpu_vprintf", takes_context=False),
        "__assertfail": Replacement("mo.assertfail", _define(
            "mo.assertfail", "void", "ptr %message, ptr %file, i32 %line, ptr %function, i64 %size",
            "call void @mo_cpu_assertfail(ptr %c, ptr %message, ptr %file, i32 %line)",
            "unreachable",
        )),
    }


_CLASSIFY = {
    "isnan": "%r = fcmp uno T %a, %a",
    "isinf": "%s = call T @llvm.fabs.M(T %a)\n  %r = fcmp oeq T %s, 0x7FF0000000000000",
    "finite": "%s = call T @llvm.fabs.M(T %a)\n  %r = fcmp one T %s, 0x7FF0000000000000",
    "isfinite": "%s = call T @llvm.fabs.M(T %a)\n  %r = fcmp one T %s, 0x7FF0000000000000",
}


def _libdevice(name: str) -> Replacement | None:
    if not name.startswith("__nv_"):
        return None
    renamed = _table()["libdevice"].get(name, name.removeprefix("__nv_"))  # type: ignore[attr-defined]
    if _libm_type(renamed) is not None:
        return Replacement(renamed, takes_context=False)
    return _own_libdevice(name, renamed)


def _own_libdevice(name: str, bare: str) -> Replacement | None:
    target = f"mo.{name}"
    classify = re.fullmatch(r"(isnan|isinf|isfinite|finite)(f|d)", bare)
    if classify:
        type_, mangled = ("float", "f32") if classify[2] == "f" else ("double", "f64")
        line = _CLASSIFY[classify[1]].replace("T", type_).replace(".M", f".{mangled}")
        return Replacement(target, _define(
            target, "i32", f"{type_} %a", line, "%i = zext i1 %r to i32", "ret i32 %i"))
    if bare in {"rsqrt", "rsqrtf"}:
        type_ = "double" if bare == "rsqrt" else "float"
        mangled = "f64" if bare == "rsqrt" else "f32"
        line = _APPROXIMATIONS["rsqrt"].replace("T", type_).replace(".M", f".{mangled}")
        line = line.replace("1.0", "1.000000e+00")
        return Replacement(target, _define(target, type_, f"{type_} %a", line, f"ret {type_} %r"))
    if bare in {"powi", "powif"}:
        type_, mangled = ("double", "f64") if bare == "powi" else ("float", "f32")
        line = f"%r = call {type_} @llvm.powi.{mangled}.i32({type_} %a, i32 %b)"
        parameters = f"{type_} %a, i32 %b"
        return Replacement(target, _define(target, type_, parameters, line, f"ret {type_} %r"))
    if bare in {"sincos", "sincosf", "fast_sincosf"}:
        return _sincos(target, "double" if bare == "sincos" else "float")
    if bare == "abs":
        line = "%r = call i32 @llvm.abs.i32(i32 %a, i1 false)"
        return Replacement(target, _define(target, "i32", "i32 %a", line, "ret i32 %r"))
    return None


def _sincos(target: str, type_: str) -> Replacement:
    mangled = "f64" if type_ == "double" else "f32"
    return Replacement(target, _define(
        target, "void", f"{type_} %a, ptr %s, ptr %k",
        f"%x = call {type_} @llvm.sin.{mangled}({type_} %a)",
        f"%y = call {type_} @llvm.cos.{mangled}({type_} %a)",
        f"store {type_} %x, ptr %s", f"store {type_} %y, ptr %k", "ret void",
    ))


def _libm_type(name: str) -> str | None:
    names: list[str] = _table()["libm"]  # type: ignore[assignment]
    if name in names:
        return "double"
    return "float" if name.endswith("f") and name[:-1] in names else None


def _external(name: str) -> Replacement | None:
    allowed: list[str] = _table()["external"]  # type: ignore[assignment]
    if _libm_type(name) is None and name not in allowed:
        return None
    return Replacement(name, takes_context=False)


def libm_attributes(name: str) -> str:
    """Return the attributes with which a libm function can be vectorised under a predicate."""
    return _PURE if _libm_type(name) is not None else ""
