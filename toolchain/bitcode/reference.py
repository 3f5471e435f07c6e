"""The references between the functions, variables and constants of a bitcode module."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from mlir_offload.toolchain.bitcode.bitstream import Record
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
_MOST_BODY_BITS = 1 << 22


class ReferenceGraph:
    """The references of each global and constant of a module, by value number.

    Bodies and constants are read on demand.
    """

    __slots__ = ("_bodies", "_constants", "_edges", "_first_local", "_module", "_steps_left")

    def __init__(self, module: BitcodeModule, constants: ConstantTable) -> None:
        """Locate the function bodies."""
        self._module = module
        self._constants = constants
        self._first_local = len(module.symbols) + len(constants)
        self._bodies = dict(function_bodies(module))
        self._edges: dict[int, frozenset[int]] = {}
        # The limit for all calls of `reached` together; there is one call for each kernel.
        self._steps_left = _MAX_STEPS

    def used(self, candidates: Collection[int]) -> frozenset[int]:
        """Return the candidates that something refers to.

        The search stops when all candidates are found. In a large module it stops after a limit and returns
        all candidates. Raises UnknownInstructionError if it reads an unknown instruction, VerificationError
        if a body is malformed.
        """
        left, bits_left = set(candidates), _MOST_BODY_BITS
        others = (number for number in range(self._first_local) if number not in self._bodies)
        for number in chain(self._bodies, others):
            if bits_left < 0:
                return frozenset(candidates)
            for value in self._referred(number):
                left.discard(value)
                if not left:
                    return frozenset(candidates)
            body = self._bodies.get(number)
            bits_left -= body.end - body.begin if body else 0
        return frozenset(candidates) - left

    def reached(self, number: int) -> set[int] | None:
        """Return the value itself and all values that it refers to, directly or not; None if the limit is exceeded.

        Raises UnknownInstructionError and VerificationError like `used`.
        """
        found = {number}
        waiting = [number]
        while waiting:
            targets = self._targets(waiting.pop())
            self._steps_left -= 1 + len(targets)
            if self._steps_left < 0:
                return None
            new = [target for target in targets if target not in found]
            found.update(new)
            waiting += new
        return found

    def _targets(self, number: int) -> frozenset[int]:
        if number not in self._edges:
            self._edges[number] = frozenset(self._referred(number))
        return self._edges[number]

    def _referred(self, number: int) -> Iterator[int]:
        """Yield the globals and constants that a global or constant refers to directly."""
        if number >= len(self._module.symbols):
            record = self._constants.record(number)
            entries = [] if record is None else [self._constant(number, record)]
            return self._values(entries)
        if number in self._bodies:
            body = self._bodies[number]
            return self._values(read_body(self._module, number, body, self._first_local))
        symbol = self._module.symbols[number]
        if isinstance(symbol, BitcodeVariable) and symbol.initializer is not None:
            return iter((symbol.initializer,))
        return iter((symbol.target,) if isinstance(symbol, BitcodeAlias) else ())

    def _constant(self, number: int, record: Record) -> Entry:
        return constant_entry(record, self._constants.type(number), number)

    def _values(self, entries: Iterable[Entry]) -> Iterator[int]:
        return (
            value
            for entry in entries
            for kind, value in entry.operands
            if kind is OperandKind.VALUE and value < self._first_local
        )
