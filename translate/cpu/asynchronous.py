"""Replacements of asynchronous operations: cp.async, mbarrier, tensor copies, wgmma; see cpu_async.c.

Each operation is complete when its call returns, as PTX permits. MLIR emits some of them as inline assembly.
`asm_call` turns these into calls of intrinsics that LLVM does not have: `llvm.nvvm.asm.NAME`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mlir_offload.offload.ir_syntax import LLVM_IR, string_of, unescape_bytes
from mlir_offload.toolchain.pattern import ir_line, ir_pattern
from mlir_offload.translate.cpu.arithmetic import asm_instruction, find_arithmetic
from mlir_offload.translate.cpu.replacement import Replacement, Sync, define, load_calls
from mlir_offload.translate.cpu.text import first_type

_ASM = ir_line(
    "`head:(``indent``result``tail ?`call `some``)` asm `sideeffect ?`"
    '"`text:string`", "`string`"(`rest:rest`'
)
_PREDICATE = ir_pattern("@$`number` ")
_ASM_TENSOR = ir_pattern(
    "cp.async.bulk.tensor.`rank:1|2|3|4|5`d.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[$0], [$1, {`inserted`} ], [$`number`];"
)
_ASM_WGMMA = ir_pattern(
    "{ .reg .pred p; setp.ne.b32 p, $`number`, 0; wgmma.mma_async.sync.aligned"
    ".m64n`n:number`k16.f32.`types:f16.f16|bf16.bf16` {`inserted`}, $`number`, $`number`, p,`inserted`; }"
)
_ASM_SHUFFLE = ir_pattern("{shfl.sync.`mode:idx|up|down|bfly`.b32 $0,$1,$2,$3,$4; }")

_COPY = ir_pattern("cp.async.`ca|cg`.shared.global.`size:4|8|16``partial:.s?`")
_WITHOUT_EFFECT = {
    "cp.async.commit.group": (),
    "cp.async.wait.all": (),
    "cp.async.wait.group": ("i32",),
    "cp.async.bulk.commit.group": (),
    "cp.async.bulk.wait.group": ("i32",),
    "cp.async.bulk.wait.group.read": ("i32",),
    "mbarrier.inval": ("ptr",),
    "mbarrier.inval.shared": ("ptr",),
    "prefetch.tensormap.p0": ("ptr",),
    "wgmma.commit_group.sync.aligned": (),
    "wgmma.fence.sync.aligned": (),
    "asm.prefetch.tensormap": ("ptr",),
    "asm.nothing": (),
}
_FENCE_OF_DESCRIPTOR = "fence.proxy.tensormap_generic.acquire."
# Flags of offload/runtime/cpu_device.h.
_INIT, _ARRIVE, _DROP, _EXPECT, _COMPLETE = 0, 1, 2, 4, 8
_MBARRIER_CHANGES = {
    "mbarrier.init": _INIT,
    "mbarrier.init.shared": _INIT,
    "asm.mbarrier.init": _INIT,
    "asm.mbarrier.arrive.expect_tx": _ARRIVE | _EXPECT,
}
_MBARRIER_ARRIVE = ir_pattern("mbarrier.arrive`drop:.drop?``no:.noComplete?``.shared?`")
_MBARRIER_SCOPED = ir_pattern(
    "mbarrier.`arrive:arrive?``drop:.drop?``.?``bytes:expect|complete?``.tx?``.relaxed?`"
    ".scope.`cta|cluster`.space.`space:cta|cluster`"
)
_MBARRIER_WAIT = ir_pattern(
    "mbarrier.`test|try`.wait`parity:.parity?``limit:.tl?`"
    "`(``.shared?``(``.relaxed?`.scope.`cta|cluster`.space.cta`)?``)`"
)
_COPIES_ARRIVE = ir_pattern("cp.async.mbarrier.arrive`noinc:.noinc?``.shared?`")
_TENSOR_LOAD = ir_pattern("cp.async.bulk.tensor.g2s`cta:.cta?`.tile.`rank:1|2|3|4|5`d")
_TENSOR_STORE = ir_pattern("cp.async.bulk.tensor.s2g.tile.`rank:1|2|3|4|5`d")
_TENSOR = ir_pattern("asm.tensor.`rank:1|2|3|4|5`d")
_WGMMA_WAITS = {"wgmma.wait_group.sync.aligned": ("i64",), "asm.wait_group": ("i32",)}
_WGMMA = ir_pattern("asm.wgmma.n`n:number`.`element:f16|bf16`")


@dataclass(frozen=True, slots=True)
class _Operation:
    """The body of a function with the parameters `%o0`, `%o1` and so on; the last line is a `ret`."""

    operands: tuple[str, ...]
    lines: tuple[str, ...]
    result: str = "void"
    sync: Sync = Sync.WARP


def asm_call(line: str) -> str | None:
    """Return a call of inline assembly as a call of an intrinsic; None if the CPU does not support the assembly."""
    match = _ASM.match(line)
    if match is None:
        return None
    text = " ".join(unescape_bytes(string_of(match["text"])).decode(errors="replace").split())
    bare = _PREDICATE.sub("", text, count=1) if text.startswith("@$") else text
    name = load_calls().inline_asm.get(bare)
    if tensor := _ASM_TENSOR.fullmatch(bare):
        name = f"tensor.{tensor['rank']}d"
    if wgmma := _ASM_WGMMA.fullmatch(bare):
        name = f"wgmma.n{wgmma['n']}.{wgmma['types'].split('.')[0]}"
    if shuffle := _ASM_SHUFFLE.fullmatch(bare):
        return _shuffle_call(match, shuffle["mode"])
    opcode = name or asm_instruction(bare)
    if bare == text and opcode is not None and (function := find_arithmetic(f"asm.{opcode}")):
        if not _fits(match, function.definition):
            return None
        name = opcode
    if name is None:
        return None
    condition = "" if bare == text else ".if"
    return f"{match['head']} @llvm.nvvm.asm.{name}{condition}({match['rest']}"


def _shuffle_call(match: re.Match[str], mode: str) -> str:
    """Return a shuffle in inline assembly as a call of the intrinsic, whose first operand is the mask."""
    end = LLVM_IR.closing("(" + match["rest"], 0) - 1
    *values, mask = LLVM_IR.split_list(match["rest"][:end])
    operands = ", ".join((mask, *values))
    return f"{match['head']} @llvm.nvvm.shfl.sync.{mode}.i32({operands}{match['rest'][end:]}"


def _fits(match: re.Match[str], definition: str) -> bool:
    """Return whether the operands and the result of inline assembly have the types of the function."""
    end = LLVM_IR.closing("(" + match["rest"], 0) - 1
    operands = LLVM_IR.split_list(match["rest"][:end]) if end else []
    head = definition[: definition.index(") alwaysinline")]
    result, _, listed = head.removeprefix("define internal ").partition(" @")
    parameters = LLVM_IR.split_list(listed[listed.index("(") + 1 :])[1:]
    wanted = [first_type(parameter) for parameter in parameters]
    given = [first_type(operand) for operand in operands]
    return match["head"].endswith(f" {result}") and wanted == given


def find_asynchronous(name: str) -> Replacement | None:
    """Return the replacement of `llvm.nvvm.NAME`; None if it is not an asynchronous operation."""
    bare = name.removesuffix(".if")
    for parse in (_without_effect, _fence, _copy, _mbarrier, _wait, _tensor, _wgmma):
        operation = parse(bare)
        if operation is not None:
            break
    else:
        return None
    operands, lines = operation.operands, operation.lines
    if bare != name:
        operands = (*operands, "i1")
        condition = f"br i1 %o{len(operands) - 1}, label %do, label %done"
        lines = (condition, "do:", *lines, "done:", "ret void")
    listed = ", ".join(f"{type_} %o{number}" for number, type_ in enumerate(operands))
    definition = define(f"mo.{name}", operation.result, listed, *lines)
    return Replacement(f"mo.{name}", definition, operation.sync)


def _without_effect(name: str) -> _Operation | None:
    operands = _WITHOUT_EFFECT.get(name)
    if operands is None:
        return None
    return _Operation(operands, ("ret void",), sync=Sync.NONE)


def _fence(name: str) -> _Operation | None:
    """Return a sequentially consistent fence: the CPU does not have the separate proxies of PTX."""
    if not name.removeprefix("asm.").startswith("fence"):
        return None
    operands = ("ptr", "i32") if name.startswith(_FENCE_OF_DESCRIPTOR) else ()
    return _Operation(operands, ("fence seq_cst", "ret void"), sync=Sync.NONE)


def _copy(name: str) -> _Operation | None:
    match = _COPY.fullmatch(name)
    if match is None:
        return None
    if match["partial"]:
        call = f"call void @mo_cpu_copy_part(ptr %o0, ptr %o1, i32 {match['size']}, i32 %o2)"
        return _Operation(("ptr", "ptr", "i32"), (call, "ret void"), sync=Sync.NONE)
    type_ = f"<{match['size']} x i8>"
    load = f"%v = load {type_}, ptr %o1, align 1"
    return _Operation(
        ("ptr", "ptr"), (load, f"store {type_} %v, ptr %o0, align 1", "ret void"), sync=Sync.NONE
    )


def _mbarrier(name: str) -> _Operation | None:
    if match := _MBARRIER_ARRIVE.fullmatch(name):
        number = "" if match["no"] else "1"
        return _change(_ARRIVE | (_DROP if match["drop"] else 0), number, has_result=True)
    if match := _COPIES_ARRIVE.fullmatch(name):
        # The copies are complete. Without .noinc, PTX also adds a pending arrival: the sum is 0.
        return _change(_ARRIVE, "1" if match["noinc"] else "0")
    if match := _MBARRIER_SCOPED.fullmatch(name):
        flags = (_ARRIVE if match["arrive"] else 0) | (_DROP if match["drop"] else 0)
        flags |= {"expect": _EXPECT, "complete": _COMPLETE}.get(match["bytes"], 0)
        return _change(flags, has_result=bool(match["arrive"]) and match["space"] == "cta")
    flags = _MBARRIER_CHANGES.get(name, -1)
    return None if flags < 0 else _change(flags)


def _change(flags: int, number: str = "", *, has_result: bool = False) -> _Operation:
    """Return an update of an mbarrier by `number` arrivals or bytes; if it is empty, the count is an operand."""
    call = f"%r = call i64 @mo_cpu_mbarrier(ptr %c, i32 {flags}, ptr %o0, i32 {number or '%o1'})"
    operands = ("ptr",) if number else ("ptr", "i32")
    if has_result:
        return _Operation(operands, (call, "ret i64 %r"), "i64")
    return _Operation(operands, (call, "ret void"))


def _wait(name: str) -> _Operation | None:
    if name == "mbarrier.pending.count":
        call = "%r = call i32 @mo_cpu_mbarrier_pending(i64 %o0)"
        return _Operation(("i64",), (call, "ret i32 %r"), "i32")
    if name == "asm.mbarrier.wait.parity":
        call = "%r = call i32 @mo_cpu_mbarrier_wait(ptr %c, ptr %o0, i32 %o1, i32 1)"
        return _Operation(("ptr", "i32", "i32"), (call, "ret void"))
    match = _MBARRIER_WAIT.fullmatch(name)
    if match is None:
        return None
    state = "i32" if match["parity"] else "i64"
    operands = ("ptr", state, "i32") if match["limit"] else ("ptr", state)
    # The phase is the highest bit of a state.
    lines = () if match["parity"] else ("%s = lshr i64 %o1, 63", "%p = trunc i64 %s to i32")
    phase = "%o1" if match["parity"] else "%p"
    call = f"%r = call i32 @mo_cpu_mbarrier_wait(ptr %c, ptr %o0, i32 {phase}, i32 0)"
    return _Operation(operands, (*lines, call, "%d = trunc i32 %r to i1", "ret i1 %d"), "i1")


def _tensor(name: str) -> _Operation | None:
    if match := _TENSOR_LOAD.fullmatch(name):
        rank = int(match["rank"])
        rest = ("i64", "i1") if match["cta"] else ("i16", "i64", "i1", "i1", "i32")
        operands = ("ptr", "ptr", "ptr", *["i32"] * rank, *rest)
        return _Operation(operands, _tensor_lines(rank, 3, "i32 0, ptr %o0, ptr %o2", "%o1"))
    if match := _TENSOR.fullmatch(name):
        rank = int(match["rank"])
        operands = ("ptr", "ptr", *["i32"] * rank, "ptr")
        lines = _tensor_lines(rank, 2, "i32 0, ptr %o0, ptr %o1", f"%o{rank + 2}")
        return _Operation(operands, lines)
    if match := _TENSOR_STORE.fullmatch(name):
        rank = int(match["rank"])
        operands = ("ptr", "ptr", *["i32"] * rank, "i64", "i1")
        return _Operation(operands, _tensor_lines(rank, 2, "i32 1, ptr %o0, ptr %o1", "null"))
    return None


def _tensor_lines(rank: int, first: int, places: str, mbarrier: str) -> tuple[str, ...]:
    lines = [f"%at = alloca [{rank} x i32], align 4"]
    for axis in range(rank):
        lines.append(f"%at{axis} = getelementptr inbounds i32, ptr %at, i64 {axis}")
        lines.append(f"store i32 %o{first + axis}, ptr %at{axis}, align 4")
    operands = f"ptr %c, {places}, ptr %at, i32 {rank}, ptr {mbarrier}"
    return (*lines, f"call void @mo_cpu_tensor_copy({operands})", "ret void")


def _wgmma(name: str) -> _Operation | None:
    if name in _WGMMA_WAITS:
        # The product of a warp group is complete only after all of its threads have executed it.
        call = "call void @mo_cpu_let_others_run(ptr %c)"
        return _Operation(_WGMMA_WAITS[name], (call, "ret void"))
    match = _WGMMA.fullmatch(name)
    if match is None:
        return None
    count = int(match["n"]) // 2
    result = f"{{ {', '.join(['float'] * count)} }}"
    lines = [f"%d = alloca [{count} x float], align 4"]
    for number in range(count):
        lines.append(f"%p{number} = getelementptr inbounds float, ptr %d, i64 {number}")
        lines.append(f"store float %o{number}, ptr %p{number}, align 4")
    numbers = ", ".join(f"i32 %o{count + 2 + number}" for number in range(5))
    element = int(match["element"] == "bf16")
    operands = (
        f"ptr %d, i64 %o{count}, i64 %o{count + 1}, i32 {match['n']}, i32 {element}, {numbers}"
    )
    lines.append(f"call void @mo_cpu_wgmma(ptr %c, {operands})")
    made = "poison"
    for number in range(count):
        lines.append(f"%v{number} = load float, ptr %p{number}, align 4")
        lines.append(f"%s{number} = insertvalue {result} {made}, float %v{number}, {number}")
        made = f"%s{number}"
    types = (*["float"] * count, "i64", "i64", *["i32"] * 5)
    return _Operation(types, (*lines, f"ret {result} {made}"), result)
