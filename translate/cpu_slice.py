"""What code between two barriers computes from arguments and ids alone, ready to be written elsewhere.

A slice is a chain of pure instructions. The code around a kernel evaluates slices once for a row of
work-items: conditions, to run the row without masks, and values that all work-items share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mlir_offload.translate.cpu_text import CALL, callee_name, first_type, split_list, type_end
from mlir_offload.translate.cpu_uniform import is_pure
from mlir_offload.translate.cpu_values import (
    TOKEN,
    Block,
    incoming,
    opcode,
    result_type,
    used_names,
)

_POISON_FLAGS = re.compile(r"\b(?:nuw|nsw|nusw|exact|disjoint|nneg|samesign|inbounds) ")
_REGISTER = re.compile(r"mo\.read\.ptx\.sreg\.(n?tid|n?ctaid)\.([xyz])")
_NAMES = {"ntid": "block_dim", "ctaid": "block_id", "nctaid": "grid_dim"}
_CONDITION = re.compile(r"^\s*br i1 (?P<condition>[^,]+), label %(?P<then>\S+), label %(?P<other>\S+?)(?:,|$)")
X = "%mo.x"
# A longer computation is not worth doing twice.
_LONGEST = 64


@dataclass(frozen=True, slots=True)
class Code:
    """A kernel's blocks by label, its instructions by the value they define, and its arguments.

    `arguments` gives the text that stands for each outside the kernel.
    """

    blocks: dict[str, Block]
    lines: dict[str, str]
    arguments: dict[str, str]


@dataclass(slots=True)
class Region:
    """Code that runs from an entrance to the next barriers, with some conditions taken as known.

    `uniform` gives the text of values that are brought along, the same for all work-items;
    `varying` names the values that each work-item brings along.
    """

    start: str
    code: Code
    uniform: dict[str, str]
    varying: frozenset[str]
    assumed: dict[str, bool] = field(default_factory=dict)
    _edges: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the blocks that can be reached."""
        work = [self.start]
        while work:
            label = work.pop()
            if label in self._edges:
                continue
            self._edges[label] = self._after(self.code.blocks[label])
            work.extend(s for s in self._edges[label] if not s.startswith("mo.b"))

    def assuming(self, condition: str, *, holds: bool) -> Region:
        """Return the region where the condition is known."""
        assumed = {**self.assumed, condition: holds}
        return Region(self.start, self.code, self.uniform, self.varying, assumed)

    @property
    def exits(self) -> tuple[int, ...]:
        """Return the numbers of the barriers that come next, 0 for the end of the kernel."""
        found = {int(s[4:]) for after in self._edges.values() for s in after if s.startswith("mo.b")}
        if any(opcode(self.code.blocks[label].lines[-1]) == "ret" for label in self._edges):
            found.add(0)
        return tuple(sorted(found)) or (0,)

    def open_conditions(self) -> list[str]:
        """Return the comparisons that branches depend on and of which nothing is known."""
        found: dict[str, None] = {}
        for label in self._edges:
            match = _CONDITION.match(self.code.blocks[label].lines[-1])
            if match and match["then"] != match["other"] and self._truth(match["condition"]) is None:
                found.update(dict.fromkeys(self._comparisons(match["condition"])))
        return list(found)

    def _after(self, block: Block) -> tuple[str, ...]:
        match = _CONDITION.match(block.lines[-1])
        truth = self._truth(match["condition"]) if match else None
        if match is None or truth is None:
            return block.successors
        return (match["then"] if truth else match["other"],)

    def _truth(self, value: str) -> bool | None:
        if value in {"true", "false"}:
            return value == "true"
        if value in self.assumed or value not in self.code.lines:
            return self.assumed.get(value)
        parts = _logic(self.code.lines[value])
        if parts is None:
            return None
        operation, first, second = parts
        truths = (self._truth(first), self._truth(second))
        decisive = operation == "or"
        if operation in {"and", "or"}:
            if decisive in truths:
                return decisive
            return None if None in truths else not decisive
        return None if None in truths else truths[0] != truths[1]

    def _comparisons(self, value: str) -> list[str]:
        if value in self.assumed or value not in self.code.lines:
            return []
        parts = _logic(self.code.lines[value])
        if parts is None:
            return [value]
        return [name for operand in parts[1:] for name in self._comparisons(operand)]

    def resolve(self, name: str) -> str | None:
        """Follow phis that only one edge can reach; None where several can."""
        while name not in self.uniform and name in self.code.lines and opcode(self.code.lines[name]) == "phi":
            values = {
                value for value, label in incoming(self.code.lines[name])
                if label in self._edges and self._defines(name) in self._edges[label]
            }
            if len(values) != 1 or name in self.varying:
                return None
            (name,) = values
        return None if name in self.varying else name

    def _defines(self, name: str) -> str:
        line = self.code.lines[name]
        return next(label for label, block in self.code.blocks.items() if line in block.lines)


def _logic(line: str) -> tuple[str, str, str] | None:
    """Return operation and operands of and, or, xor and select on i1."""
    match = re.match(r"^\s*\S+ = (and|or|xor) i1 ([^,]+), ([^,]+)", _POISON_FLAGS.sub("", line))
    if match:
        return match[1], match[2], match[3]
    match = re.match(r"^\s*\S+ = select i1 ([^,]+), i1 ([^,]+), i1 ([^,]+)", line)
    if match and match[3] == "false":
        return "and", match[1], match[2]
    if match and match[2] == "true":
        return "or", match[1], match[3]
    return None


@dataclass(frozen=True, slots=True)
class Slice:
    """Instructions in order, then the operand that holds the result; `X` is the work-item's x."""

    lines: tuple[str, ...]
    value: str
    needs_x: bool


class SliceWriter:
    """Writes slices of one region with names of their own."""

    def __init__(self, region: Region, prefix: str, loop: str) -> None:
        self._region = region
        self._prefix = prefix
        self._loop = loop

    def slice(self, value: str, x: str = X) -> Slice | None:
        """Return what computes the operand, None where memory or a loop takes part in it."""
        lines: list[str] = []
        values: dict[str, str | None] = {}
        result = self._write(value, x, lines, values)
        if result is None:
            return None
        needs_x = result == x or any(x in TOKEN.findall(line) for line in lines)
        return Slice(tuple(lines), result, needs_x)

    def _write(self, value: str, x: str, lines: list[str], values: dict[str, str | None]) -> str | None:
        if len(lines) > _LONGEST or len(values) > _LONGEST:
            return None
        if not value.startswith("%"):
            return value if TOKEN.search(value) is None else None
        if value in values:
            return values[value]
        values[value] = None
        resolved = self._region.resolve(value)
        if resolved is None or not resolved.startswith("%"):
            values[value] = resolved
        elif resolved in self._region.uniform:
            values[value] = self._region.uniform[resolved]
        elif resolved not in self._region.code.lines:
            values[value] = self._region.code.arguments.get(resolved)
        else:
            values[value] = self._instruction(resolved, x, lines, values)
        return values[value]

    def _instruction(
        self, name: str, x: str, lines: list[str], values: dict[str, str | None]
    ) -> str | None:
        line = self._region.code.lines[name]
        if not is_pure(line):
            return None
        match = CALL.match(line)
        if match and callee_name(match["callee"]).startswith("mo."):
            return self._register(callee_name(match["callee"]), x)
        text = _without_metadata(line.split(" = ", 1)[1])
        for used in dict.fromkeys(used_names(line)):
            operand = self._write(used, x, lines, values)
            if operand is None:
                return None
            text = TOKEN.sub(lambda m, u=used, o=operand: o if m[0] == u else m[0], text)  # type: ignore[misc]
        written = f"%{self._prefix}{len(lines)}"
        # Evaluated where the kernel may not: nothing may become poison that is none there.
        lines.append(f"  {written} = {_POISON_FLAGS.sub('', text)}")
        return written

    def _register(self, name: str, x: str) -> str | None:
        if name in {"mo.static_shared", "mo.dynamic_shared"}:
            return "%static" if "static" in name else "%dynamic"
        match = _REGISTER.fullmatch(name)
        if match is None:
            return None
        if match[1] != "tid":
            return f"%{_NAMES[match[1]]}.{match[2]}"
        return x if match[2] == "x" else f"%{self._loop}.{match[2]}"


def _without_metadata(text: str) -> str:
    return re.sub(r", !\w+ !\d+", "", text)


def grows_with_x(region: Region, value: str) -> bool:
    """Say whether the operand is x plus something the row shares, in the arithmetic of its width."""
    resolved = region.resolve(value)
    if resolved is None or resolved in region.uniform or resolved not in region.code.lines:
        return False
    line = region.code.lines[resolved]
    match = CALL.match(line)
    if match:
        return callee_name(match["callee"]) == "mo.read.ptx.sreg.tid.x"
    name = opcode(line)
    operands = split_list(_without_metadata(_POISON_FLAGS.sub("", line.split(f" = {name} ", 1)[1])))
    first = operands[0][type_end(operands[0]) :].strip().split(" to ")[0]
    if name in {"sext", "zext"}:
        inner = region.code.lines.get(first, "")
        return "@mo.read.ptx.sreg.tid.x(" in inner
    if name == "trunc":
        return grows_with_x(region, first)
    if name == "sub":
        return grows_with_x(region, first) and not depends_on_x(region, operands[1])
    if name == "add":
        second = operands[1]
        return (grows_with_x(region, first) and not depends_on_x(region, second)) or (
            grows_with_x(region, second) and not depends_on_x(region, first)
        )
    return False


def depends_on_x(region: Region, value: str) -> bool:
    """Say whether the operand differs between the work-items of a row, or may."""
    found = SliceWriter(region, "q", "q").slice(value)
    return found is None or found.needs_x


@dataclass(frozen=True, slots=True)
class Comparison:
    """`icmp` taken apart."""

    predicate: str
    type: str
    first: str
    second: str


def parse_comparison(line: str) -> Comparison | None:
    """Return the parts of an integer comparison."""
    if opcode(line) != "icmp":
        return None
    text = _without_metadata(_POISON_FLAGS.sub("", line.split(" = icmp ", 1)[1]))
    predicate, rest = text.split(" ", 1)
    type_ = first_type(rest)
    first, second = split_list(rest[len(type_) :].strip())
    return Comparison(predicate, type_, first, second)


__all__ = [
    "X", "Comparison", "Region", "Slice", "SliceWriter", "depends_on_x", "grows_with_x",
    "parse_comparison", "result_type",
]
