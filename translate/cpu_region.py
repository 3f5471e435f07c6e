"""Kernels split at barriers: one function that can be entered behind each of them.

All work-items of a block run the code up to the next barrier, one after the other, before any goes
on. What lives across a barrier is computed again where it follows from arguments and ids alone;
the rest waits in memory, an array over the work-items for each value, so that the loop over the
work-items is one that the compiler vectorises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from mlir_offload.translate.cpu_shared import size_of
from mlir_offload.translate.cpu_text import Function, first_type, split_list
from mlir_offload.translate.cpu_uniform import find_uniform, is_pure
from mlir_offload.translate.cpu_values import (
    TOKEN,
    Block,
    defined_name,
    find_liveness,
    incoming,
    opcode,
    parameter_name,
    parse_blocks,
    result_type,
    used_names,
)

_BARRIER = re.compile(r"call void @mo\.barrier\(")
_LIFETIME = re.compile(r"call void @llvm\.lifetime\.")
_MAX_BLOCK = 1024
END = 0


@dataclass(frozen=True, slots=True)
class Slot:
    """A value that waits in memory: its type and the offset of its array in the block's state."""

    value: str
    type: str
    offset: int
    is_uniform: bool


@dataclass(frozen=True, slots=True)
class Entrance:
    """A place where the function is entered: behind barrier `number`, or 0 for its beginning.

    `exits` are the barriers that come next, END for the end of the kernel; `live` is what must
    be brought back from memory.
    """

    number: int
    exits: tuple[int, ...]
    live: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class RegionKernel:
    """The split function and what the code around it has to know.

    The function takes the context, the number of the entrance, the kernel's arguments and the
    uniform values. `next_offset` is where each work-item leaves the number of its next entrance.
    """

    function: Function
    entrances: tuple[Entrance, ...]
    uniform: tuple[Slot, ...]
    next_offset: int
    state_bytes: int


def has_barrier(function: Function) -> bool:
    """Say whether the function itself waits at a barrier."""
    return any(_BARRIER.search(line) for line in function.body)


def split_at_barriers(function: Function) -> RegionKernel | None:
    """Split the kernel; None where private memory cannot be laid out (an allocation in a loop)."""
    blocks = _cut(parse_blocks(function))
    state = _State()
    uniform = find_uniform(blocks, frozenset(map(parameter_name, function.parameters[1:])))
    private = _place_private(blocks, state)
    if private is None:
        return None
    resumes = {
        int(block.label.removeprefix("mo.b")): block
        for block in blocks
        if block.label.startswith("mo.b")
    }
    lines = {name: line for block in blocks for line in block.lines if (name := defined_name(line))}
    live_in = find_liveness(blocks, frozenset(lines)).live_in
    crossing = {name for block in resumes.values() for name in live_in[block.label]}
    hoisted, kept = _hoist(blocks, lines, crossing)
    slots = {
        name: Slot(name, result_type(lines[name]), state.add(result_type(lines[name])), name in uniform)
        for name in kept
    }
    next_offset = state.add("i32")
    entrances = _entrances(blocks, resumes, live_in, slots)
    splitter = _Splitter(blocks, slots, {e.number: e for e in entrances}, next_offset)
    body = splitter.body(private + hoisted)
    shared = tuple(slot for slot in slots.values() if slot.is_uniform)
    parameters = (
        function.parameters[0],
        "i32 %mo.entrance",
        *function.parameters[1:],
        *(f"{slot.type} {argument_name(slot)}" for slot in shared),
    )
    split = replace(function.with_parameters(parameters), body=body)
    return RegionKernel(split, entrances, shared, next_offset, state.size_bytes)


class _State:
    """Arrays over the work-items, one behind the other."""

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
    """End a block behind each barrier; phis learn the new names of their predecessors."""
    result: list[Block] = []
    last_part: dict[str, str] = {}
    number = 0
    for block in blocks:
        part = Block(block.label)
        result.append(part)
        for line in block.lines:
            part.lines.append(line)
            if _BARRIER.search(line):
                number += 1
                part.lines.append(f"  br label %mo.b{number}")
                part = Block(f"mo.b{number}")
                result.append(part)
        last_part[block.label] = part.label
    for block in result:
        block.lines = [_rename_incoming(line, last_part) for line in block.lines]
    return result


def _rename_incoming(line: str, labels: dict[str, str]) -> str:
    if opcode(line) != "phi":
        return line
    return re.sub(
        r", %([^\s\],]+) \]", lambda match: f", %{labels.get(match[1], match[1])} ]", line
    )


def _place_private(blocks: list[Block], state: _State) -> tuple[str, ...] | None:
    """Give each private array a place per work-item; return the instructions that find it."""
    lines: list[str] = []
    in_loops = _labels_in_loops(blocks)
    for block in blocks:
        kept: list[str] = []
        for line in block.lines:
            if opcode(line) == "alloca":
                size = _allocated_bytes(line)
                if size is None or block.label in in_loops:
                    return None
                lines += _private_address(defined_name(line) or "", len(lines), size, state)
            elif not _LIFETIME.search(line):
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
    type_, *rest = split_list(line.split("alloca ", 1)[1])
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
    for label in successors:
        seen: set[str] = set()
        work = list(successors[label])
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
    blocks: list[Block],
    resumes: dict[int, Block],
    live_in: dict[str, frozenset[str]],
    slots: dict[str, Slot],
) -> tuple[Entrance, ...]:
    by_label = {block.label: block for block in blocks}
    found = [Entrance(0, _exits(blocks[0].label, by_label), ())]
    for number, block in resumes.items():
        live = tuple(slot for name, slot in slots.items() if name in live_in[block.label])
        found.append(Entrance(number, _exits(block.label, by_label), live))
    return tuple(found)


def _exits(start: str, blocks: dict[str, Block]) -> tuple[int, ...]:
    """Return the barriers, and END, that can be reached without crossing one."""
    found: set[int] = set()
    seen: set[str] = set()
    work = [start]
    while work:
        label = work.pop()
        if label in seen:
            continue
        seen.add(label)
        after = blocks[label].successors
        if opcode(blocks[label].lines[-1]) == "ret":
            found.add(END)
        for successor in after:
            if successor.startswith("mo.b"):
                found.add(int(successor.removeprefix("mo.b")))
            else:
                work.append(successor)
    return tuple(sorted(found)) or (END,)


def argument_name(slot: Slot) -> str:
    """Return the parameter that brings a uniform value."""
    return f"%mo.u{slot.offset}"


class _Splitter:
    """Writes the body of the split function; values with a slot go over variables of their own.

    The variables are for mem2reg: behind a barrier a definition no longer dominates its uses.
    """

    def __init__(
        self, blocks: list[Block], slots: dict[str, Slot], entrances: dict[int, Entrance], next_offset: int
    ) -> None:
        self._blocks = blocks
        self._slots = slots
        self._entrances = entrances
        self._next = next_offset
        self._has_choice = any(len(entrance.exits) > 1 for entrance in entrances.values())
        self._count = 0

    def body(self, prologue: tuple[str, ...]) -> tuple[str, ...]:
        lines = [
            "mo.enter:",
            "  %mo.memory.at = getelementptr inbounds %mo.item, ptr %mo.c, i32 0, i32 7",
            "  %mo.memory = load ptr, ptr %mo.memory.at, align 8",
            "  %mo.linear.at = getelementptr inbounds %mo.item, ptr %mo.c, i32 0, i32 1",
            "  %mo.linear = load i32, ptr %mo.linear.at, align 4",
            "  %mo.index = zext i32 %mo.linear to i64",
            *(f"  {_variable(slot)} = alloca {slot.type}" for slot in self._slots.values()),
            *prologue,
            f"  switch i32 %mo.entrance, label %{self._blocks[0].label} ["
            + " ".join(f"i32 {n}, label %mo.resume{n}" for n in self._entrances if n)
            + "]",
        ]
        for number, entrance in self._entrances.items():
            if number:
                lines += [f"mo.resume{number}:", *self._resume(entrance), f"  br label %mo.b{number}"]
        phi_loads = self._phi_loads()
        for block in self._blocks:
            lines += [f"{block.label}:", *self._block(block, phi_loads.get(block.label, []))]
        return tuple(lines)

    def _block(self, block: Block, phi_loads: list[str]) -> list[str]:
        lines: list[str] = []
        stores: list[str] = []
        for line in block.lines[:-1]:
            if opcode(line) != "phi":
                lines += stores
                stores = []
            if _BARRIER.search(line):
                return [*lines, *self._leave(int(block.successors[0].removeprefix("mo.b")))]
            lines += self._with_loads(line)
            slot = self._slots.get(defined_name(line) or "")
            if slot:
                stores.append(f"  store {slot.type} {slot.value}, ptr {_variable(slot)}")
        lines += [*stores, *phi_loads]
        last = block.lines[-1]
        if opcode(last) == "ret":
            return [*lines, *self._leave(END)]
        return [*lines, *self._with_loads(last)]

    def _with_loads(self, line: str) -> list[str]:
        if opcode(line) == "phi":
            return [line]
        loads: list[str] = []
        name = defined_name(line)
        for used in dict.fromkeys(used_names(line)):
            slot = self._slots.get(used)
            if slot is None or used == name:
                continue
            loaded = self._load(slot, loads)
            line = TOKEN.sub(lambda m, u=used, v=loaded: v if m[0] == u else m[0], line)  # type: ignore[misc]
        return [*loads, line]

    def _load(self, slot: Slot, lines: list[str]) -> str:
        self._count += 1
        lines.append(f"  %mo.l{self._count} = load {slot.type}, ptr {_variable(slot)}")
        return f"%mo.l{self._count}"

    def _phi_loads(self) -> dict[str, list[str]]:
        """Load the operands of phis where their edges begin."""
        result: dict[str, list[str]] = {}
        for block in self._blocks:
            for index, line in enumerate(block.lines):
                if opcode(line) != "phi":
                    break
                for value, label in incoming(line):
                    slot = self._slots.get(value)
                    if slot is None:
                        continue
                    loaded = self._load(slot, result.setdefault(label, []))
                    line = line.replace(f"[ {value}, %{label} ]", f"[ {loaded}, %{label} ]")  # noqa: PLW2901
                block.lines[index] = line
        return result

    def _resume(self, entrance: Entrance) -> list[str]:
        lines: list[str] = []
        for slot in entrance.live:
            value = argument_name(slot)
            if not slot.is_uniform:
                address = self._address(slot.type, slot.offset, lines)
                value = f"%mo.r{self._count}"
                lines.append(f"  {value} = load {slot.type}, ptr {address}")
            lines.append(f"  store {slot.type} {value}, ptr {_variable(slot)}")
        return lines

    def _leave(self, number: int) -> list[str]:
        lines: list[str] = []
        for slot in self._entrances[number].live if number else ():
            value = self._load(slot, lines)
            address = self._address(slot.type, slot.offset, lines)
            lines.append(f"  store {slot.type} {value}, ptr {address}")
        if self._has_choice:
            address = self._address("i32", self._next, lines)
            lines.append(f"  store i32 {number}, ptr {address}")
        return [*lines, "  ret void"]

    def _address(self, type_: str, offset: int, lines: list[str]) -> str:
        self._count += 1
        n = self._count
        lines.append(f"  %mo.base{n} = getelementptr inbounds i8, ptr %mo.memory, i64 {offset}")
        lines.append(f"  %mo.at{n} = getelementptr inbounds {type_}, ptr %mo.base{n}, i64 %mo.index")
        return f"%mo.at{n}"


def _variable(slot: Slot) -> str:
    return f"%mo.v{slot.offset}"
