"""Replace globals by computed addresses; constant expressions over them become instructions in the entry block."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from mlir_offload.offload.ir_syntax import LLVM_IR
from mlir_offload.toolchain.pattern import ir_line, ir_pattern, ir_reference
from mlir_offload.translate.cpu.text import Function, callee_name, references, symbol, type_end

_CONSTANT_OPERATION = ir_pattern(
    "`start``op:getelementptr|bitcast|ptrtoint|inttoptr|trunc|add|sub|mul|shl|xor`"
    "`flags:flags`` ?``end`"
)
_ADDRESS = ir_pattern("%mo.e`number`")
_PHI = ir_line("`indent``local` = phi ")
# The start of an incoming value of a phi; in a constant array, no space follows the bracket.
_INCOMING = "[ "
_NAMED_TYPE = ir_pattern("`local` `end`")
_CAST_OPERATIONS = frozenset({"bitcast", "inttoptr", "ptrtoint", "trunc"})


def place_addresses(
    function: Function, names: AbstractSet[str], address: Callable[[str], tuple[str, ...]]
) -> Function:
    """Return the function with globals replaced by addresses that its entry block computes.

    `address` returns the operations for a global; `%0` in an operation is the value of the previous one.
    Constant expressions and aggregates over the globals become instructions in the entry block too.
    """
    used = sorted(names & {callee_name(one) for one in references(function.body)})
    if not used:
        return function
    entry = _Entry(address)
    lines = [entry.rewrite(line, used) for line in function.body]
    position = 1 if lines and lines[0].endswith(":") else 0
    return replace(function, body=(*lines[:position], *entry.instructions, *lines[position:]))


def _refers(line: str, name: str) -> bool:
    reference = symbol(name)
    return reference in line and ir_reference(reference).search(line) is not None


class _Entry:
    """The instructions in the entry block that compute the addresses of replaced globals."""

    def __init__(self, address: Callable[[str], tuple[str, ...]]) -> None:
        self.instructions: list[str] = []
        self._address = address
        self._known: dict[str, str] = {}

    def rewrite(self, line: str, used: list[str]) -> str:
        """Return the line with globals replaced by addresses, and with the constants around them expanded."""
        for name in used:
            if _refers(line, name):
                address = self._value(f"@{name}", *self._address(name))
                line = ir_reference(symbol(name)).sub(address, line)
        while (start := _innermost_constant(line)) is not None:
            line = self._hoist(line, start)
        return line

    def _value(self, key: str, *operations: str) -> str:
        """Return the value of the last operation, which is added unless `key` is known.

        `%0` in an operation is the value of the previous one.
        """
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
        """Replace the constant whose bracket opens at `start` by instructions."""
        end = LLVM_IR.closing(line, start)
        match = _CONSTANT_OPERATION.search(line[:start]) if line[start] == "(" else None
        if match:
            begin, value = match.start(), self._operation(match, line[start + 1 : end])
        else:
            begin, value = self._aggregate(line, start, end)
        return line[:begin] + value + line[end + 1 :]

    def _operation(self, match: re.Match[str], operands: str) -> str:
        if match["op"] == "bitcast":
            given, _, wanted = operands.rpartition(" to ")
            kind, _, value = given.rpartition(" ")
            if kind == wanted:
                return value
        text = f"{match['op']}{match['flags']} {operands}"
        if match["op"] not in _CAST_OPERATIONS and match["op"] != "getelementptr":
            first, second = LLVM_IR.split_list(operands)
            text = f"{match['op']}{match['flags']} {first}, {second[type_end(second) :].strip()}"
        return self._value(text, text)

    def _aggregate(self, line: str, start: int, end: int) -> tuple[int, str]:
        """Build `{ ptr, i64 } { ptr %x, i64 0 }` member by member."""
        type_ = _aggregate_type(line, start)
        value = "poison"
        for index, member in enumerate(LLVM_IR.split_list(line[start + 1 : end])):
            text = f"insertvalue {type_} {value}, {member}, {index}"
            value = self._value(text, text)
        return start, value


def _aggregate_type(line: str, start: int) -> str:
    """Return the type of the aggregate that opens at `start`.

    The type precedes the aggregate, or, in a phi, all incoming values.
    """
    phi = _PHI.match(line)
    if phi and line[:start].endswith(_INCOMING):
        return line[phi.end() : phi.end() + type_end(line[phi.end() :])]
    named = _NAMED_TYPE.search(line[:start])
    return named[0].strip() if named else line[LLVM_IR.enclosing(line, start - 2)[-1] : start - 1]


def _innermost_constant(line: str) -> int | None:
    """Return the bracket of a constant around an address that contains no other such constant; None if there is none."""
    starts = (_enclosing(line, match.start()) for match in _ADDRESS.finditer(line))
    return max((start for start in starts if start is not None), default=None)


def _enclosing(line: str, position: int) -> int | None:
    """Return the bracket around the position if it belongs to a constant."""
    opened = [place for place in LLVM_IR.enclosing(line, position) if line[place] != "<"]
    return opened[-1] if opened and _opens_constant(line, opened[-1]) else None


def _opens_constant(line: str, start: int) -> bool:
    """Return whether a bracket opens a constant: a constant expression, or an aggregate after its type."""
    before = line[:start]
    if line[start] == "(":
        return _CONSTANT_OPERATION.search(before) is not None
    if line.startswith(_INCOMING, start):
        return False
    if before.endswith(_INCOMING):
        return _PHI.match(line) is not None
    return before.endswith(("} ", "] ")) or _NAMED_TYPE.search(before) is not None
