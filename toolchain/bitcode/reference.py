"""Which functions and variables of a bitcode module refer to which others."""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.toolchain.bitcode.body import (
    Entry,
    OperandKind,
    constant_entry,
    function_bodies,
    read_body,
)
from mlir_offload.toolchain.bitcode.constant import ConstantTable
from mlir_offload.toolchain.bitcode.global_value import BitcodeAlias, BitcodeVariable
from mlir_offload.toolchain.bitcode.module import BitcodeModule

_MAX_STEPS = 1 << 22


class ReferenceGraph:
    """What each global and constant of a module refers to, all by their numbers as values."""

    __slots__ = ("_edges", "_first_local", "_steps_left")

    def __init__(self, module: BitcodeModule, constants: ConstantTable) -> None:
        """Read all bodies and constants. Raises UnknownInstructionError where one is not known."""
        self._first_local = len(module.symbols) + len(constants)
        self._edges: dict[int, set[int]] = {}
        # Each kernel asks for what it reaches; together they may not take longer than this.
        self._steps_left = _MAX_STEPS
        for number, symbol in enumerate(module.symbols):
            if isinstance(symbol, BitcodeVariable) and symbol.initializer is not None:
                self._edges[number] = {symbol.initializer}
            elif isinstance(symbol, BitcodeAlias):
                self._edges[number] = {symbol.target}
        for number in range(len(module.symbols), self._first_local):
            record = constants.record(number)
            if record is not None:
                self._add(number, [constant_entry(record, constants.type(number), number)])
        for function, body in function_bodies(module):
            self._add(function, read_body(module, function, body, self._first_local))

    def _add(self, number: int, entries: Iterable[Entry]) -> None:
        targets = {
            value
            for entry in entries
            for kind, value in entry.operands
            if kind is OperandKind.VALUE and value < self._first_local
        }
        if targets:
            self._edges[number] = targets

    def used(self) -> set[int]:
        """Return all that something refers to."""
        return set().union(*self._edges.values())

    def reached(self, number: int) -> set[int] | None:
        """Return all that a value refers to, directly or not; None where that takes too long."""
        found = {number}
        waiting = [number]
        while waiting:
            targets = self._edges.get(waiting.pop(), ())
            self._steps_left -= 1 + len(targets)
            if self._steps_left < 0:
                return None
            new = [target for target in targets if target not in found]
            found.update(new)
            waiting += new
        return found
