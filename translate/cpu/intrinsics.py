"""Replacements of NVVM intrinsics: LLVM IR for one thread."""

from __future__ import annotations

from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.arithmetic import find_arithmetic, find_short_fma
from mlir_offload.translate.cpu.asynchronous import find_asynchronous
from mlir_offload.translate.cpu.extremum import find_extremum
from mlir_offload.translate.cpu.library import find_library_function
from mlir_offload.translate.cpu.replacement import Replacement, define, load_calls
from mlir_offload.translate.cpu.subgroup import find_collective

_PREFIX = "llvm.nvvm."
_REGISTER = ir_pattern("read.ptx.sreg.`register:some``(`.`axis:x|y|z``)?`")
ITEM_TYPE = "%mo.thread = type { [3 x i32], i32, [3 x i32], [3 x i32], [3 x i32], ptr, ptr, ptr }"
_FIELDS = {"tid": 0, "ntid": 2, "ctaid": 3, "nctaid": 4}
RUNTIME_DECLARATIONS = """\
declare void @mo_cpu_launch(ptr, ptr, ptr)
declare void @mo_cpu_run_blocks(ptr, i64, i64)
declare void @mo_cpu_run_fibers(ptr, i64, i64)
declare i32 @mo_cpu_barrier(ptr, i32, i32, ptr)
declare i64 @mo_cpu_warp(ptr, i32, i32, i32, i64, i32, i32)
declare void @mo_cpu_fragments(ptr, i32, ptr)
declare i64 @mo_cpu_mbarrier(ptr, i32, ptr, i32)
declare i32 @mo_cpu_mbarrier_pending(i64)
declare i32 @mo_cpu_mbarrier_wait(ptr, ptr, i32, i32)
declare void @mo_cpu_let_others_run(ptr)
declare void @mo_cpu_copy_part(ptr, ptr, i32, i32)
declare void @mo_cpu_tensor_copy(ptr, i32, ptr, ptr, ptr, i32, ptr)
declare void @mo_cpu_wgmma(ptr, ptr, i64, i64, i32, i32, i32, i32, i32, i32, i32)
declare void @mo_cpu_disagree(ptr, ptr, ptr) cold noreturn
declare void @mo_cpu_permute(ptr, ptr, ptr)
declare void @mo_cpu_collective(i32, i32, ptr, ptr, ptr, ptr, ptr)
declare i32 @mo_cpu_vprintf(ptr, ptr)
declare i32 @mo_cpu_cluster(ptr, i32, i32)
declare i64 @mo_cpu_nanoseconds()
declare void @mo_cpu_assertfail(ptr, ptr, ptr, i32, ptr, i64) cold noreturn
declare void @mo_cpu_note_failure(ptr, ptr, ptr, i32, ptr, i64) cold
declare i32 @mo_cpu_has_failed(ptr)"""


def find_replacement(name: str) -> Replacement | None:
    """Return the replacement of a function that device code calls but does not define; None if there is none."""
    if not name.startswith(_PREFIX):
        found = find_extremum(name)
        extremum = Replacement(*found, takes_context=False) if found else None
        return extremum or find_short_fma(name) or find_library_function(name)
    bare = load_calls().aliases.get(name, name.removeprefix(_PREFIX))
    kinds = (_special_register, find_collective, find_asynchronous, _single, find_arithmetic)
    return next(filter(None, (find(bare) for find in kinds)), None)


def source_name_of(name: str) -> str:
    """Return the source-level name of an intrinsic without a replacement, for diagnostics."""
    rows = load_calls().unsupported
    prefixes = [prefix for prefix in rows if name.startswith(prefix)]
    if prefixes:
        return f"{rows[max(prefixes, key=len)]} ({name})"
    return name


def _special_register(name: str) -> Replacement | None:
    match = _REGISTER.fullmatch(name)
    if match is None:
        return None
    register, axis = match["register"], match["axis"]
    if register in _CLOCKS:
        type_, *clock = _CLOCKS[register]
        return Replacement(
            f"mo.clock.{register}", define(f"mo.clock.{register}", type_, "", *clock)
        )
    target = f"mo.{name}"
    if axis is not None and register in _FIELDS:
        place = f"i32 0, i32 {_FIELDS[register]}, i32 {'xyz'.index(axis)}"
        return Replacement(
            target,
            define(
                target,
                "i32",
                "",
                f"%p = getelementptr inbounds %mo.thread, ptr %c, {place}",
                "%v = load i32, ptr %p, align 4",
                "ret i32 %v",
            ),
        )
    if register in _CLUSTER_REGISTERS:
        place = f"i32 {_CLUSTER_REGISTERS.index(register)}, i32 {'xyz'.index(axis or 'x')}"
        call = f"%v = call i32 @mo_cpu_cluster(ptr %c, {place})"
        return Replacement(target, define(target, "i32", "", call, "ret i32 %v"))
    lines = _LANE_REGISTERS.get(register)
    if lines is None:
        return None
    return Replacement(target, define(target, "i32", "", *_LOAD_LINEAR, *lines))


# In the order of the enum in offload/runtime/cpu_device.h.
_CLUSTER_REGISTERS = (
    "clusterid",
    "nclusterid",
    "cluster.ctaid",
    "cluster.nctaid",
    "cluster.ctarank",
    "cluster.nctarank",
)
_CLOCKS = {
    "clock": (
        *("i32", "%t = call i64 @llvm.readcyclecounter()"),
        *("%n = trunc i64 %t to i32", "ret i32 %n"),
    ),
    "clock64": ("i64", "%t = call i64 @llvm.readcyclecounter()", "ret i64 %t"),
    "globaltimer": ("i64", "%t = call i64 @mo_cpu_nanoseconds()", "ret i64 %t"),
}
_LOAD_LINEAR = (
    "%p = getelementptr inbounds %mo.thread, ptr %c, i32 0, i32 1",
    "%n = load i32, ptr %p, align 4",
    "%l = and i32 %n, 31",
)
_LANE_REGISTERS = {
    "laneid": ("ret i32 %l",),
    "warpid": ("%w = lshr i32 %n, 5", "ret i32 %w"),
    "nwarpid": (
        "%px = getelementptr inbounds %mo.thread, ptr %c, i32 0, i32 2, i32 0",
        "%py = getelementptr inbounds %mo.thread, ptr %c, i32 0, i32 2, i32 1",
        "%pz = getelementptr inbounds %mo.thread, ptr %c, i32 0, i32 2, i32 2",
        "%x = load i32, ptr %px, align 4",
        "%y = load i32, ptr %py, align 4",
        "%z = load i32, ptr %pz, align 4",
        "%xy = mul i32 %x, %y",
        "%xyz = mul i32 %xy, %z",
        "%u = add i32 %xyz, 31",
        "%w = lshr i32 %u, 5",
        "ret i32 %w",
    ),
    "warpsize": ("ret i32 32",),
    "smid": ("ret i32 0",),
    "nsmid": ("ret i32 1",),
    "gridid": ("ret i32 0",),
    "lanemask.eq": ("%m = shl i32 1, %l", "ret i32 %m"),
    "lanemask.lt": ("%b = shl i32 1, %l", "%m = sub i32 %b, 1", "ret i32 %m"),
    "lanemask.le": ("%b = shl i32 2, %l", "%m = sub i32 %b, 1", "ret i32 %m"),
    "lanemask.gt": ("%m = shl i32 -2, %l", "ret i32 %m"),
    "lanemask.ge": ("%m = shl i32 -1, %l", "ret i32 %m"),
}


def _single(name: str) -> Replacement | None:
    target = f"mo.{name}"
    if name == "asm.elect":
        first = (*_LOAD_LINEAR, "%i = icmp eq i32 %l, 0", "ret i1 %i")
        return Replacement(target, define(target, "i1", "", *first))
    if name == "elect.sync":
        elect = (
            *_LOAD_LINEAR,
            "%e = call i32 @llvm.cttz.i32(i32 %m, i1 false)",
            "%i = icmp eq i32 %e, %l",
            "%t = insertvalue { i32, i1 } poison, i32 %e, 0",
            "%u = insertvalue { i32, i1 } %t, i1 %i, 1",
            "ret { i32, i1 } %u",
        )
        return Replacement(target, define(target, "{ i32, i1 }", "i32 %m", *elect))
    if name == "fence":
        return Replacement(target, define(target, "void", "", "fence seq_cst", "ret void"))
    return None
