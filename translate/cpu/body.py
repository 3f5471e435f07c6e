"""The body of a kernel that was split at barriers."""

from __future__ import annotations

from mlir_offload.translate.cpu.kernel import (
    BARRIER,
    END,
    FAILURE,
    BarrierSplitKernel,
    Entrance,
    Slot,
    argument_name,
)
from mlir_offload.translate.cpu.traffic import RegionTraffic
from mlir_offload.translate.cpu.values import (
    TOKEN,
    Block,
    defined_name,
    incoming,
    opcode,
    used_names,
)


class RegionBody:
    """Writes the body of the split function; values with a slot go over variables of their own.

    The variables are for mem2reg: behind a barrier a definition no longer dominates its uses.
    """

    def __init__(
        self,
        blocks: list[Block],
        slots: dict[str, Slot],
        kernel: BarrierSplitKernel,
        traffic: RegionTraffic,
    ) -> None:
        self._blocks = blocks
        self._traffic = traffic
        self._live = {
            f"mo.b{entrance.number}": frozenset(slot.value for slot in entrance.live)
            for entrance in kernel.entrances
        }
        self._slots = slots
        self._kernel = kernel
        self._entrances = {entrance.number: entrance for entrance in kernel.entrances}
        self._has_choice = any(entrance.has_choice for entrance in kernel.entrances)
        self._count = 0

    def lines(self, prologue: tuple[str, ...]) -> tuple[str, ...]:
        """Return the whole body."""
        cases = " ".join(f"i32 {n}, label %mo.resume{n}" for n in self._entrances if n)
        lines = [
            "mo.enter:",
            "  %mo.memory.at = getelementptr inbounds %mo.thread, ptr %mo.c, i32 0, i32 7",
            "  %mo.memory = load ptr, ptr %mo.memory.at, align 8",
            "  %mo.linear.at = getelementptr inbounds %mo.thread, ptr %mo.c, i32 0, i32 1",
            "  %mo.linear = load i32, ptr %mo.linear.at, align 4",
            "  %mo.index = zext i32 %mo.linear to i64",
            *(f"  {_variable(slot)} = alloca {slot.type}" for slot in self._slots.values()),
            *(text for line in prologue for text in self._with_condition(line)),
            f"  switch i32 %mo.entrance, label %{self._blocks[0].label} [{cases}]",
        ]
        for number, entrance in self._entrances.items():
            if number:
                lines += [
                    f"mo.resume{number}:",
                    *self._resume(entrance),
                    f"  br label %mo.b{number}",
                ]
        phi_loads = self._phi_loads()
        for block in self._blocks:
            lines += [f"{block.label}:", *self._block(block, phi_loads.get(block.label, []))]
        return tuple(lines)

    def _with_condition(self, line: str) -> list[str]:
        """Let the caller say what it knows about a condition."""
        name = defined_name(line)
        number = self._kernel.conditions.number_of.get(name or "")
        if number is None:
            return [line]
        self._count += 1
        own = f"%mo.own{self._count}"
        known = f"i1 %mo.known{number}, i1 %mo.holds{number}"
        evaluated = line.replace(f"{name} = ", f"{own} = ", 1)
        return [evaluated, f"  {name} = select {known}, i1 {own}"]

    def _block(self, block: Block, phi_loads: list[str]) -> list[str]:
        lines: list[str] = []
        stores: list[str] = []
        for line in block.lines[:-1]:
            if opcode(line) != "phi":
                lines += stores
                stores = []
            if BARRIER.search(line):
                number = int(block.successors[0].removeprefix("mo.b"))
                return [*lines, *self._leave(number, self._traffic.written(block.label))]
            *loads, line = self._with_loads(line)  # noqa: PLW2901
            lines += [*loads, *self._with_condition(line)]
            slot = self._slots.get(defined_name(line) or "")
            if slot:
                stores.append(f"  store {slot.type} {slot.value}, ptr {_variable(slot)}")
        lines += [*stores, *phi_loads]
        last = block.lines[-1]
        if opcode(last) == "ret":
            return [*lines, *self._leave(END, frozenset())]
        if opcode(last) == "unreachable" and lines and FAILURE.search(lines[-1]):
            return [*lines, "  ret void"]
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
        needed = self._traffic.read(f"mo.b{entrance.number}", self._live)
        for slot in entrance.live:
            if slot.value not in needed and not slot.is_uniform:
                continue
            if slot.is_uniform:
                value = argument_name(self._kernel.passed.number_of[slot])
            else:
                address = self._address(slot.type, slot.offset, lines)
                value = f"%mo.r{self._count}"
                lines.append(f"  {value} = load {slot.type}, ptr {address}")
            lines.append(f"  store {slot.type} {value}, ptr {_variable(slot)}")
        return lines

    def _leave(self, number: int, written: frozenset[str]) -> list[str]:
        lines: list[str] = []
        for slot in self._entrances[number].live if number else ():
            if slot.value not in written and not slot.is_uniform:
                continue
            if slot.is_uniform and slot.value not in self._kernel.in_memory:
                continue
            value = self._load(slot, lines)
            address = self._address(slot.type, slot.offset, lines)
            lines.append(f"  store {slot.type} {value}, ptr {address}")
        if self._has_choice:
            self._count += 1
            tell, out = f"mo.tell{self._count}", f"mo.out{self._count}"
            lines += [f"  br i1 %mo.choice, label %{tell}, label %{out}", f"{tell}:"]
            address = self._address("i32", self._kernel.next_offset, lines)
            lines += [f"  store i32 {number}, ptr {address}", f"  br label %{out}", f"{out}:"]
        return [*lines, "  ret void"]

    def _address(self, type_: str, offset: int, lines: list[str]) -> str:
        self._count += 1
        n = self._count
        lines.append(f"  %mo.base{n} = getelementptr inbounds i8, ptr %mo.memory, i64 {offset}")
        lines.append(
            f"  %mo.at{n} = getelementptr inbounds {type_}, ptr %mo.base{n}, i64 %mo.index"
        )
        return f"%mo.at{n}"


def _variable(slot: Slot) -> str:
    return f"%mo.v{slot.offset}"
