"""Kernels split at barriers: one function that can be entered behind each of them.

All threads of a block run the code up to the next barrier, one after the other, before any goes
on. What lives across a barrier is computed again where it follows from arguments and ids alone;
the rest waits in memory, an array over the threads for each value, so that the loop over the
threads is one that the compiler vectorises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from mlir_offload.offload.ir_syntax import LLVM_IR
from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.body import RegionBody
from mlir_offload.translate.cpu.bound import with_bounded_regions
from mlir_offload.translate.cpu.kernel import (
    BARRIER,
    BARRIER_PLACE,
    FAILURE,
    BarrierSplitKernel,
    Entrance,
    Slot,
    argument_name,
    uniform_exits,
)
from mlir_offload.translate.cpu.parameter import SharedParameters, share_parameters
from mlir_offload.translate.cpu.path import Code, Region
from mlir_offload.translate.cpu.shared import size_of
from mlir_offload.translate.cpu.slice import SliceWriter
from mlir_offload.translate.cpu.text import Function, first_type
from mlir_offload.translate.cpu.traffic import RegionTraffic
from mlir_offload.translate.cpu.uniform import find_uniform, is_pure
from mlir_offload.translate.cpu.values import (
    Block,
    defined_name,
    find_liveness,
    opcode,
    parameter_name,
    parse_blocks,
    result_type,
    used_names,
)
from mlir_offload.translate.cpu.variant import build_variants, conditions_of, leaves_of, parts_ways

_DEBUG_LOCATION = ir_pattern(", !dbg !`number`")
_INCOMING_BLOCK = ir_pattern(", %`label:bare` ]")
_LIFETIME = "call void @llvm.lifetime."
_MAX_BLOCK = 1024


def has_barrier(function: Function) -> bool:
    """Say whether the function itself waits at a barrier."""
    return any(BARRIER.search(line) for line in function.body)


def split_at_barriers(function: Function) -> BarrierSplitKernel | None:
    """Split the kernel; None where only fibers can run it.

    That is where some threads of a block end before a barrier at which the others wait, and
    where memory is allocated in a loop and barriers are met.

    Private arrays get a place per thread. One that is allocated in a loop cannot have it; a
    kernel without barriers may keep it, but then its threads must run one after the other.
    """
    blocks = _cut(with_bounded_regions(parse_blocks(function)))
    state = _State()
    uniform = find_uniform(blocks, frozenset(map(parameter_name, function.parameters[1:])))
    private = _place_private(blocks, state)
    resumes = {int(b.label[4:]): b for b in blocks if b.label.startswith("mo.b")}
    if private is None and resumes:
        return None
    lines = {name: line for block in blocks for line in block.lines if (name := defined_name(line))}
    live_in = find_liveness(blocks, frozenset(lines)).live_in
    crossing = {name for block in resumes.values() for name in live_in[block.label]}
    hoisted, kept = _hoist(blocks, lines, crossing)
    slots = {
        name: Slot(name, type_ := result_type(lines[name]), state.add(type_), name in uniform)
        for name in kept
    }
    arguments = {
        parameter_name(text): f"%p{index}"
        for index, text in enumerate(function.parameters[1:])
        if "byval(" not in text
    }
    starts = {0: blocks[0].label, **{number: block.label for number, block in resumes.items()}}
    entrances = _entrances(
        starts, live_in, slots, Code({b.label: b for b in blocks}, lines, arguments)
    )
    if any(parts_ways(entrance.variant) for entrance in entrances):
        return None
    shared = tuple(slot for slot in slots.values() if slot.is_uniform)
    passed = share_parameters(
        {slot: slot.type for slot in shared},
        [[slot for slot in entrance.live if slot.is_uniform] for entrance in entrances],
    )
    conditions = _conditions(entrances, blocks)
    kernel = BarrierSplitKernel(
        function,
        function.parameters[1:],
        ("null", *_places(blocks)),
        entrances,
        shared,
        _in_memory(entrances),
        passed,
        conditions,
        state.add("i32"),
        state.size_bytes,
        has_shared_arrays=private is None,
        can_fail=any(FAILURE.search(line) for block in blocks for line in block.lines),
    )
    traffic = RegionTraffic(blocks, frozenset(slots))
    body = RegionBody(blocks, slots, kernel, traffic).lines((*(private or ()), *hoisted))
    parameters = _parameters(function, passed.types, len(conditions.types))
    return replace(kernel, function=replace(function.with_parameters(parameters), body=body))


def _places(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield the strings of the barriers that `_cut` numbered, which say where they are."""
    for line in (line for block in blocks for line in block.lines if BARRIER.search(line)):
        place = BARRIER_PLACE.search(line)
        yield place[0] if place else "null"


def _parameters(function: Function, passed: Sequence[str], conditions: int) -> tuple[str, ...]:
    """Return the parameters of the kernel, with where to go on and what all threads share."""
    return (
        *(function.parameters[0], "i32 %mo.entrance"),
        *function.parameters[1:],
        *(f"{type_} {argument_name(number)}" for number, type_ in enumerate(passed)),
        "i1 %mo.choice",
        *(f"i1 %mo.known{number}, i1 %mo.holds{number}" for number in range(conditions)),
    )


def _conditions(entrances: tuple[Entrance, ...], blocks: Sequence[Block]) -> SharedParameters[str]:
    """Return the parameters that tell of conditions: of each that a region may evaluate, its own."""
    types = {c: "i1" for e in entrances for c in conditions_of(e.variant)}
    evaluated: dict[str, list[str]] = {}
    for block in blocks:
        for line in block.lines:
            if (name := defined_name(line)) in types:
                evaluated.setdefault(block.label, []).append(name or "")
    # What was moved to the entry is evaluated in all of them.
    everywhere = types.keys() - {name for names in evaluated.values() for name in names}
    groups = []
    for entrance in entrances:
        labels = {label for leaf in leaves_of(entrance.variant) for label in leaf.region.labels}
        here = [name for label in sorted(labels) for name in evaluated.get(label, ())]
        groups.append([*sorted(everywhere), *here, *conditions_of(entrance.variant)])
    return share_parameters(types, groups)


def _in_memory(entrances: tuple[Entrance, ...]) -> frozenset[str]:
    """Return the uniform values that some leaf cannot compute outside the loop over the row."""
    found: set[str] = set()
    for leaf in (leaf for entrance in entrances for leaf in leaves_of(entrance.variant)):
        for slot, places in uniform_exits(entrances, leaf.region).items():
            if slot.value in found:
                continue
            computed = SliceWriter(leaf.region).slice(slot.value, places)
            if computed is None or computed.needs_x:
                found.add(slot.value)
    return frozenset(found)


class _State:
    """Arrays over the threads, one behind the other."""

    def __init__(self) -> None:
        self.size_bytes = 0

    def add(self, type_: str) -> int:
        return self.add_bytes(size_of(type_)[0])

    def add_bytes(self, size_bytes: int) -> int:
        offset = self.size_bytes
        # Arrays of 1024 elements would all begin in the same sets of the caches.
        self.size_bytes += -(-size_bytes * _MAX_BLOCK // 64) * 64 + 192
        return offset


def _cut(blocks: list[Block]) -> list[Block]:
    """End a block behind each barrier and each failed assertion; phis learn the new names.

    What follows a failed assertion is never reached; its block keeps the edges to others.
    """
    result: list[Block] = []
    last_part: dict[str, str] = {}
    number = failures = 0
    for block in blocks:
        part = Block(block.label)
        result.append(part)
        for line in block.lines:
            if failure := FAILURE.search(line):
                failures += 1
                part.lines += [_noted(line, failure), "  unreachable"]
                part = Block(f"mo.dead{failures}")
                result.append(part)
                continue
            part.lines.append(line)
            if BARRIER.search(line):
                number += 1
                part.lines.append(f"  br label %mo.b{number}")
                part = Block(f"mo.b{number}")
                result.append(part)
        last_part[block.label] = part.label
    for block in result:
        block.lines = [_rename_incoming(line, last_part) for line in block.lines]
    return result


def _noted(line: str, failure: re.Match[str]) -> str:
    location = _DEBUG_LOCATION.search(line)
    return (
        f"  call void @mo_cpu_note_failure{failure['arguments']}{location[0] if location else ''}"
    )


def _rename_incoming(line: str, labels: dict[str, str]) -> str:
    if opcode(line) != "phi":
        return line
    return _INCOMING_BLOCK.sub(lambda match: f", %{labels.get(match[1], match[1])} ]", line)


def _place_private(blocks: list[Block], state: _State) -> tuple[str, ...] | None:
    """Give each private array a place per thread; return the instructions that find it."""
    lines: list[str] = []
    has_arrays = any(opcode(line) == "alloca" for block in blocks for line in block.lines)
    in_loops = _labels_in_loops(blocks) if has_arrays else set()
    for block in blocks:
        kept: list[str] = []
        for line in block.lines:
            if opcode(line) == "alloca":
                size = _allocated_bytes(line)
                if size is None or block.label in in_loops:
                    return None
                lines += _private_address(defined_name(line) or "", len(lines), size, state)
            elif _LIFETIME not in line:
                kept.append(line)
        block.lines = kept
    return tuple(lines)


def _private_address(name: str, number: int, size: int, state: _State) -> list[str]:
    stride = -(-size // 16) * 16
    base, scaled = f"%mo.private{number}", f"%mo.offset{number}"
    return [
        f"  {base} = getelementptr inbounds i8, ptr %mo.memory, i64 {state.add_bytes(stride)}",
        f"  {scaled} = mul nuw nsw i64 %mo.index, {stride}",
        f"  {name} = getelementptr inbounds i8, ptr {base}, i64 {scaled}",
    ]


def _allocated_bytes(line: str) -> int | None:
    type_, *rest = LLVM_IR.split_list(line.split("alloca ", 1)[1])
    count = 1
    for part in rest:
        if part.startswith("i"):
            number = part.split()[1]
            if not number.isdigit():
                return None
            count = int(number)
    return size_of(first_type(type_))[0] * count


def _labels_in_loops(blocks: list[Block]) -> set[str]:
    successors = {block.label: block.successors for block in blocks}
    found = set()
    for label, after in successors.items():
        seen: set[str] = set()
        work = list(after)
        while work:
            other = work.pop()
            if other not in seen:
                seen.add(other)
                work.extend(successors[other])
        if label in seen:
            found.add(label)
    return found


def _hoist(
    blocks: list[Block], lines: dict[str, str], crossing: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Move what follows from arguments and ids alone to the entry; return it, and what is kept."""
    follows: dict[str, None] = {}
    pure = {name: line for name, line in lines.items() if is_pure(line)}
    operands = {name: [n for n in used_names(line) if n in lines] for name, line in pure.items()}
    grown = True
    while grown:
        before = len(follows)
        for name in pure:
            if name not in follows and all(used in follows for used in operands[name]):
                follows[name] = None
        grown = len(follows) > before
    needed: set[str] = set()
    work = [name for name in crossing if name in follows]
    while work:
        name = work.pop()
        if name not in needed:
            needed.add(name)
            work.extend(operands[name])
    for block in blocks:
        block.lines = [line for line in block.lines if defined_name(line) not in needed]
    kept = tuple(name for name in lines if name in crossing and name not in follows)
    return tuple(lines[name] for name in follows if name in needed), kept


def _entrances(
    starts: dict[int, str], live_in: dict[str, frozenset[str]], slots: dict[str, Slot], code: Code
) -> tuple[Entrance, ...]:
    found: list[Entrance] = []
    for number, label in starts.items():
        names = live_in[label] if number else frozenset()
        live = tuple(slot for name, slot in slots.items() if name in names)
        brought = {s.value: f"%s{number}.u{s.offset}" if s.is_uniform else None for s in live}
        found.append(Entrance(number, live, build_variants(Region(label, code, brought))))
    return tuple(found)
