"""Replacements of subgroup operations and barriers."""

from __future__ import annotations

from msgspec.structs import replace

from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.replacement import Replacement, Sync, define

_SHUFFLES = ("idx", "up", "down", "bfly")
_VOTES = ("all", "any", "uni", "ballot")
_REDUCTIONS = ("add", "umax", "umin", "max", "min", "and", "or", "xor", "fmax", "fmin")
_SHUFFLE_NAME = ir_pattern("shfl.sync.`mode:idx|up|down|bfly`.`type:i32|f32``p:p?`")
_VOTE_NAME = ir_pattern("vote.`mode:all|any|uni|ballot`.sync")
_MATCH_NAME = ir_pattern("match.`mode:any|all`.sync.`type:i32|i64``p:p?`")
_REDUX_NAME = ir_pattern("redux.sync.`operation:word`")
# Since LLVM 21, which upgrades llvm.nvvm.barrier0.popc to them.
_VOTING_BARRIER = ir_pattern("barrier.cta.red.`kind:popc|and|or``.aligned?`.all")
# The enum values of offload/runtime/cpu_device.h.
_VOTE, _MATCH_ANY, _MATCH_ALL, _REDUX, _WARP_BARRIER = 4, 8, 9, 10, 20
_CALL_WARP = "call i64 @mo_cpu_warp(ptr %c, i32 %site"


def find_collective(name: str) -> Replacement | None:
    """Return the replacement of `llvm.nvvm.NAME`, or of `barrier`; None for another name."""
    if name in {"activemask", "asm.activemask"}:
        # A ballot with the mask 0: it returns the lanes that are at this call and waits for none.
        ballot = _vote("vote.ballot.sync")
        return ballot and replace(ballot, operands=("i32 0", "i1 true"))
    for build in (_shuffle, _vote, _match, _redux, _block_barrier, _barrier_of_warp):
        found = build(name)
        if found is not None:
            return found
    return None


def _shuffle(name: str) -> Replacement | None:
    match = _SHUFFLE_NAME.fullmatch(name)
    if match is None:
        return None
    type_ = "float" if match[2] == "f32" else "i32"
    lines = [
        f"%b = bitcast {type_} %v to i32",
        "%w = zext i32 %b to i64",
        f"%r = {_CALL_WARP}, i32 {_SHUFFLES.index(match[1])}, i32 %m, i64 %w, i32 %d, i32 %s)",
        "%lo = trunc i64 %r to i32",
        f"%x = bitcast i32 %lo to {type_}",
    ]
    result = type_
    if match[3]:
        result = f"{{ {type_}, i1 }}"
        lines += [
            "%hi = lshr i64 %r, 32",
            "%p = trunc i64 %hi to i1",
            f"%t = insertvalue {result} poison, {type_} %x, 0",
            f"%u = insertvalue {result} %t, i1 %p, 1",
            f"ret {result} %u",
        ]
    else:
        lines.append(f"ret {result} %x")
    target = f"mo.{name}"
    parameters = f"i32 %site, i32 %m, {type_} %v, i32 %d, i32 %s"
    return Replacement(target, define(target, result, parameters, *lines), Sync.WARP)


def _vote(name: str) -> Replacement | None:
    match = _VOTE_NAME.fullmatch(name)
    if match is None:
        return None
    target, result = f"mo.{name}", "i32" if match[1] == "ballot" else "i1"
    return Replacement(
        target,
        define(
            target,
            result,
            "i32 %site, i32 %m, i1 %v",
            "%w = zext i1 %v to i64",
            f"%r = {_CALL_WARP}, i32 {_VOTE + _VOTES.index(match[1])}, i32 %m, i64 %w, i32 0, i32 0)",
            f"%x = trunc i64 %r to {result}",
            f"ret {result} %x",
        ),
        Sync.WARP,
    )


def _match(name: str) -> Replacement | None:
    match = _MATCH_NAME.fullmatch(name)
    if match is None:
        return None
    target = f"mo.{name}"
    operation = _MATCH_ALL if match[1] == "all" else _MATCH_ANY
    widen = "%w = zext i32 %v to i64" if match[2] == "i32" else "%w = add i64 %v, 0"
    lines = [
        widen,
        f"%r = {_CALL_WARP}, i32 {operation}, i32 %m, i64 %w, i32 0, i32 0)",
        "%x = trunc i64 %r to i32",
    ]
    if match[3]:
        lines += [
            "%hi = lshr i64 %r, 32",
            "%p = trunc i64 %hi to i1",
            "%t = insertvalue { i32, i1 } poison, i32 %x, 0",
            "%u = insertvalue { i32, i1 } %t, i1 %p, 1",
            "ret { i32, i1 } %u",
        ]
    else:
        lines.append("ret i32 %x")
    result = "{ i32, i1 }" if match[3] else "i32"
    definition = define(target, result, f"i32 %site, i32 %m, {match[2]} %v", *lines)
    return Replacement(target, definition, Sync.WARP)


def _redux(name: str) -> Replacement | None:
    match = _REDUX_NAME.fullmatch(name)
    if match is None or match[1] not in _REDUCTIONS:
        return None
    target, type_ = f"mo.{name}", "float" if match[1][0] == "f" else "i32"
    operation = _REDUX + _REDUCTIONS.index(match[1])
    return Replacement(
        target,
        define(
            target,
            type_,
            f"i32 %site, {type_} %v, i32 %m",
            f"%b = bitcast {type_} %v to i32",
            "%w = zext i32 %b to i64",
            f"%r = {_CALL_WARP}, i32 {operation}, i32 %m, i64 %w, i32 0, i32 0)",
            "%lo = trunc i64 %r to i32",
            f"%x = bitcast i32 %lo to {type_}",
            f"ret {type_} %x",
        ),
        Sync.WARP,
    )


def _block_barrier(name: str) -> Replacement | None:
    kinds = {"barrier": 0, "barrier.popc": 1, "barrier.and": 2, "barrier.or": 3}
    if match := _VOTING_BARRIER.fullmatch(name):
        kind, result = match["kind"], "i32" if match["kind"] == "popc" else "i1"
        call = (
            f"call i32 @mo_cpu_barrier(ptr %c, i32 {kinds[f'barrier.{kind}']}, i32 %w, ptr %place)"
        )
        lines = ("%w = zext i1 %v to i32", f"%r = {call}")
        last = ("%x = icmp ne i32 %r, 0", "ret i1 %x") if result == "i1" else ("ret i32 %r",)
        target = f"mo.barrier.{kind}.all"
        definition = define(target, result, "ptr %place, i32 %id, i1 %v", *lines, *last)
        return Replacement(target, definition, Sync.WARP)
    if name not in kinds:
        return None
    if name == "barrier":
        # The operand, a barrier ID, is dropped: every barrier synchronizes the whole block.
        return Replacement(
            "mo.barrier",
            define(
                "mo.barrier",
                "void",
                "ptr %place",
                "call i32 @mo_cpu_barrier(ptr %c, i32 0, i32 0, ptr %place)",
                "ret void",
            ),
            Sync.BLOCK,
        )
    target = f"mo.{name}"
    return Replacement(
        target,
        define(
            target,
            "i32",
            "ptr %place, i32 %v",
            f"%r = call i32 @mo_cpu_barrier(ptr %c, i32 {kinds[name]}, i32 %v, ptr %place)",
            "ret i32 %r",
        ),
        Sync.WARP,
    )


def _barrier_of_warp(name: str) -> Replacement | None:
    target = f"mo.{name}"
    if name == "bar.warp.sync":
        call = f"{_CALL_WARP}, i32 {_WARP_BARRIER}, i32 %m, i64 0, i32 0, i32 0)"
        definition = define(target, "void", "i32 %site, i32 %m", call, "ret void")
        return Replacement(target, definition, Sync.WARP)
    return None
