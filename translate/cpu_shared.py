"""Shared memory of a block: globals of address space 3 become offsets from the work-item's context.

A thread runs one block at a time and hands each block its own memory, so that a global variable
cannot stand for it. Thread-local storage could, but its address calls in loops stop the vectoriser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from mlir_offload.translate.cpu_text import (
    DeviceModule,
    Function,
    closing,
    split_list,
    symbol,
    type_end,
)

_SHARED_GLOBAL = re.compile(r"^.*?\baddrspace\(3\) (?:global|constant) (?P<rest>.*)$")
_ALIGN = re.compile(r", align (\d+)")
_ADDRESS_SPACE = re.compile(r" ?\baddrspace\(\d+\)")
_POINTER_MANGLING = re.compile(r"\.p[1-9]\d*(?=[.\s(])")
_INTRINSIC = re.compile(r"@llvm\.[\w.]+\(")
_CONSTANT_OPERATION = re.compile(
    r"\b(?P<op>getelementptr|addrspacecast|bitcast|ptrtoint|inttoptr|trunc|add|sub|mul|shl|xor)"
    r"(?P<flags>(?: [a-z]+(?:\([^()]*\))?)*) ?$"
)
_ADDRESS = re.compile(r"%mo\.e\d+\b")
_PHI = re.compile(r"\s*%\S+ = phi ")
# What stands before a value of a phi; a constant array has no blank there.
_INCOMING = "[ "
_NAMED_TYPE = re.compile(r"%[-\w.$]+ $")
_CAST_OPERATIONS = frozenset({"addrspacecast", "bitcast", "inttoptr", "ptrtoint", "trunc"})
_SCALAR_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}
_CACHE_LINE = 64


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """Offsets in bytes of the static shared globals, their end, the dynamic ones behind it."""

    offsets: tuple[tuple[str, int], ...]
    size_bytes: int
    dynamic: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all shared globals."""
        return frozenset((*dict(self.offsets), *self.dynamic))


def lay_out_shared(module: DeviceModule) -> SharedLayout:
    """Give each static shared global of the module an offset; `[0 x T]` is the dynamic memory."""
    offsets: list[tuple[str, int]] = []
    dynamic: list[str] = []
    end = 0
    for name, line in module.globals:
        match = _SHARED_GLOBAL.match(line)
        if match is None:
            continue
        type_ = match["rest"][: type_end(match["rest"])]
        size = size_of(_ADDRESS_SPACE.sub("", type_))[0]
        if size == 0:
            dynamic.append(name)
            continue
        align = _ALIGN.search(match["rest"])
        end = _round_up(end, max(_CACHE_LINE, int(align[1]) if align else 1))
        offsets.append((name, end))
        end += size
    return SharedLayout(tuple(offsets), _round_up(end, _CACHE_LINE), tuple(dynamic))


def size_of(type_: str) -> tuple[int, int]:
    """Return size and alignment in bytes of a type on x86-64."""
    if type_[0] == "<" and type_[1] != "{":
        count, element = type_[1:-1].split(" x ", 1)
        bits = int(count) * (int(element[1:]) if element[0] == "i" else size_of(element)[0] * 8)
        size = 1 << max(0, (bits + 7) // 8 - 1).bit_length()
        return size, size
    if type_[0] == "[":
        count, element = type_[1:-1].split(" x ", 1)
        size, align = size_of(element)
        return int(count) * size, align
    if type_[0] in "{<":
        return _size_of_structure(type_)
    bits = _SCALAR_BITS.get(type_) or int(type_[1:])
    size = 1 << max(0, (bits + 7) // 8 - 1).bit_length()
    return size, min(size, 16)


def _size_of_structure(type_: str) -> tuple[int, int]:
    is_packed = type_[0] == "<"
    end, largest = 0, 1
    for member in split_list(type_.strip("<{ }>") if not is_packed else type_[2:-2]):
        size, align = size_of(member)
        align = 1 if is_packed else align
        end, largest = _round_up(end, align) + size, max(largest, align)
    return _round_up(end, largest), largest


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def without_address_spaces(line: str) -> str:
    """Return the line with every pointer in address space 0, as on the CPU all are."""
    line = _ADDRESS_SPACE.sub("", line)
    line = _INTRINSIC.sub(lambda match: _POINTER_MANGLING.sub(".p0", match[0]), line)
    return re.sub(r"= addrspacecast (?=ptr|<)", "= bitcast ", line)


def place_shared(function: Function, layout: SharedLayout, context: str) -> Function:
    """Return the function with shared globals replaced by addresses computed at its entry.

    Constant expressions and aggregates over them become instructions, there too.
    """
    body = tuple(without_address_spaces(line) for line in function.body)
    head = without_address_spaces(function.head)
    used = [name for name in sorted(layout.names) if any(_refers(line, name) for line in body)]
    if not used:
        return replace(function, head=head, body=body)
    entry = _Entry(context, layout)
    lines = [entry.rewrite(line, used) for line in body]
    position = 1 if lines and lines[0].endswith(":") else 0
    return replace(
        function, head=head, body=(*lines[:position], *entry.instructions, *lines[position:])
    )


def _refers(line: str, name: str) -> bool:
    reference = symbol(name)
    return reference in line and _reference(reference).search(line) is not None


def _reference(reference: str) -> re.Pattern[str]:
    return re.compile(re.escape(reference) + r"(?![-\w.$])")


class _Entry:
    """The instructions that a function needs at its entry to address shared memory."""

    def __init__(self, context: str, layout: SharedLayout) -> None:
        self.instructions: list[str] = []
        self._context = context
        self._offsets = dict(layout.offsets)
        self._known: dict[str, str] = {}

    def rewrite(self, line: str, used: list[str]) -> str:
        """Return the instruction with addresses instead of globals, constants around them undone."""
        for name in used:
            if _refers(line, name):
                address = self._value(f"@{name}", *self._address(name))
                line = _reference(symbol(name)).sub(address, line)
        while (start := _innermost_constant(line)) is not None:
            line = self._hoist(line, start)
        return line

    def _address(self, name: str) -> tuple[str, ...]:
        offset = self._offsets.get(name)
        if offset is None:
            return (f"call ptr @mo.dynamic_shared(ptr {self._context})",)
        return (
            f"call ptr @mo.static_shared(ptr {self._context})",
            f"getelementptr inbounds i8, ptr %0, i64 {offset}",
        )

    def _value(self, key: str, *operations: str) -> str:
        """Return the value of the last operation; `%0` in it stands for the one before."""
        if key in self._known:
            return self._known[key]
        value = ""
        for operation in operations:
            text = operation.replace("%0", value) if value else operation
            value = f"%mo.e{len(self.instructions)}"
            self.instructions.append(f"  {value} = {text}")
        self._known[key] = value
        return value

    def _hoist(self, line: str, start: int) -> str:
        """Turn the constant whose bracket opens at `start` into instructions."""
        end = closing(line, start)
        match = _CONSTANT_OPERATION.search(line[:start]) if line[start] == "(" else None
        if match:
            begin, value = match.start(), self._operation(match, line[start + 1 : end])
        else:
            begin, value = self._aggregate(line, start, end)
        return line[:begin] + value + line[end + 1 :]

    def _operation(self, match: re.Match[str], operands: str) -> str:
        if match["op"] == "addrspacecast":
            return operands[type_end(operands) :].split(maxsplit=1)[0]
        text = f"{match['op']}{match['flags']} {operands}"
        if match["op"] not in _CAST_OPERATIONS and match["op"] != "getelementptr":
            first, second = split_list(operands)
            text = f"{match['op']}{match['flags']} {first}, {second[type_end(second) :].strip()}"
        return self._value(text, text)

    def _aggregate(self, line: str, start: int, end: int) -> tuple[int, str]:
        """Build `{ ptr, i64 } { ptr %x, i64 0 }` member by member."""
        type_ = _aggregate_type(line, start)
        value = "poison"
        for index, member in enumerate(split_list(line[start + 1 : end])):
            text = f"insertvalue {type_} {value}, {member}, {index}"
            value = self._value(text, text)
        return start, value


def _aggregate_type(line: str, start: int) -> str:
    """Return the type of the constant that opens there: it stands before it, in a phi before all."""
    phi = _PHI.match(line)
    if phi and line[:start].endswith(_INCOMING):
        return line[phi.end() : phi.end() + type_end(line[phi.end() :])]
    named = _NAMED_TYPE.search(line[:start])
    return named[0].strip() if named else line[_opening(line, start - 2) : start - 1]


def _innermost_constant(line: str) -> int | None:
    """Return the bracket of a constant around an address that holds no other such constant."""
    starts = (_enclosing(line, match.start()) for match in _ADDRESS.finditer(line))
    return max((start for start in starts if start is not None), default=None)


def _enclosing(line: str, position: int) -> int | None:
    """Return the bracket around the position if it belongs to a constant."""
    depth = 0
    for index in range(position - 1, -1, -1):
        if line[index] in ")]}":
            depth += 1
        elif line[index] in "([{":
            if depth == 0:
                return index if _opens_constant(line, index) else None
            depth -= 1
    return None


def _opens_constant(line: str, start: int) -> bool:
    """Say whether a bracket opens a constant: an operation's, or an aggregate behind its type."""
    before = line[:start]
    if line[start] == "(":
        return _CONSTANT_OPERATION.search(before) is not None
    if line.startswith(_INCOMING, start):
        return False
    if before.endswith(_INCOMING):
        return _PHI.match(line) is not None
    return before.endswith(("} ", "] ")) or _NAMED_TYPE.search(before) is not None


def _opening(line: str, end: int) -> int:
    """Return the index of the bracket that the one at `end` closes."""
    depth = 0
    for index in range(end, -1, -1):
        if line[index] in ")]}":
            depth += 1
        elif line[index] in "([{":
            depth -= 1
            if depth == 0:
                return index
    msg = f"unbalanced brackets: {line}"
    raise ValueError(msg)
