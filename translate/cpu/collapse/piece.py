"""The control-flow graph of pieces: basic blocks split at barriers, subgroup operations and serial instructions."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from functools import cached_property

from mlir_offload.toolchain.llvmc.code import Opcode
from mlir_offload.toolchain.llvmc.ir import Function, Instruction, Value
from mlir_offload.translate.cpu.collapse.dominance import dominators_of, reached_from

_MOST_PIECES = 400
_COLLECTIVES = ("mo.shfl.", "mo.vote.", "mo.match.", "mo.redux.", "mo.bar.warp.")
BARRIER = "mo.barrier"
_PLACE = 1
_UNSUPPORTED = {
    **{
        f"mo.barrier.{kind}{form}": f"a barrier that {work} votes"
        for kind, work in (("popc", "counts"), ("and", "combines"), ("or", "combines"))
        for form in ("", ".all")
    },
}
ASSERTION = "mo_cpu_assertfail"
_IGNORED = ("llvm.dbg.", "llvm.lifetime.", "llvm.assume", "llvm.experimental.noalias.scope.decl")
REGISTERS = "mo.read.ptx.sreg."
SHARED_MEMORY = ("mo.static_shared", "mo.dynamic_shared")


_ADDRESS_OPCODES = (Opcode.GEP, Opcode.SEXT, Opcode.ZEXT)


class CannotCollapseError(Exception):
    """A kernel cannot be collapsed; the message is the reason."""


def is_meeting(name: str) -> bool:
    """Return whether a function is a barrier or a subgroup operation."""
    return name.startswith((BARRIER, *_COLLECTIVES))


class Piece:
    """A piece: a part of a basic block in which the threads of a strip do not synchronize.

    A barrier is at the end of its piece, and `place` is the string with its source location. A subgroup operation
    is the only instruction of its piece. A serial piece contains one instruction that the lanes must execute one
    after the other, and the computation of its addresses.
    """

    def __init__(self, number: int) -> None:
        """Create an empty piece."""
        self.number = number
        self.phis: list[Instruction] = []
        self.instructions: list[Instruction] = []
        self.terminator: Instruction | None = None
        self.is_barrier = False
        self.place: Value | None = None
        self.collective: Instruction | None = None
        self.is_serial = False
        self.successors: list[Piece] = []
        self.predecessors: list[Piece] = []

    def __repr__(self) -> str:
        """Return a short name."""
        return f"<piece {self.number}>"

    @property
    def can_end_with_a_barrier(self) -> bool:
        """Return whether the piece has successors and no barrier, subgroup operation or serial instruction."""
        return bool(self.successors) and not (self.is_barrier or self.collective or self.is_serial)

    @property
    def condition(self) -> Instruction | None:
        """Return the terminator if there are several successors; otherwise None."""
        return self.terminator if len(self.successors) > 1 else None

    @property
    def serial(self) -> Instruction | None:
        """Return the instruction that the lanes must execute one after the other; None if there is none."""
        return self.instructions[-1] if self.is_serial else None

    @property
    def has_effect(self) -> bool:
        """Return whether the piece contains more than its terminator."""
        return bool(self.phis or self.instructions or self.collective)


def condition_of(piece: Piece) -> Value:
    """Return the condition of the branch at the end of a piece."""
    if piece.terminator is None:
        msg = f"{piece} has no branch"
        raise ValueError(msg)
    library = piece.terminator.context.library
    return piece.terminator.context.value(library.call("GetCondition", piece.terminator.handle))


class Graph:
    """The pieces of a kernel; `order` is topological except for back edges of loops."""

    def __init__(self, function: Function) -> None:
        """Split a function into pieces. Raises CannotCollapseError for unsupported instructions and loops."""
        self.pieces: list[Piece] = []
        self.home: dict[Value, Piece] = {}
        self.incoming: dict[Instruction, list[tuple[Piece, Value]]] = {}
        self.operands: dict[Instruction, tuple[Value, ...]] = {}
        self._cut(function)
        self._check_ends()
        self.find_order()

    def find_order(self) -> None:
        """Compute the numbers and the order of the pieces; required after each change of the graph."""
        for number, piece in enumerate(self.pieces):
            piece.number = number
        for name in ("dominators", "post_dominators", "loops"):
            self.__dict__.pop(name, None)
        self.order = self._topological_order()
        self.position = {piece: number for number, piece in enumerate(self.order)}

    def wait_behind(self, piece: Piece) -> None:
        """Insert a barrier at the end of a piece."""
        self._split(piece, len(piece.instructions))
        piece.is_barrier = True

    def isolate(self, instructions: Iterable[Instruction]) -> None:
        """Put each of some instructions into a piece of its own."""
        for instruction in instructions:
            piece = self.home[instruction]
            place = piece.instructions.index(instruction)
            if place or piece.phis:
                piece = self._split(piece, place)
            if len(piece.instructions) > 1 or piece.condition or piece.is_barrier:
                self._split(piece, 1)
        self.find_order()

    def _split(self, piece: Piece, place: int) -> Piece:
        """Move the instructions from a place on, and the end of the piece, to a new piece that follows it."""
        made = self._new_piece(before=piece)
        piece.instructions, made.instructions = (
            piece.instructions[:place],
            piece.instructions[place:],
        )
        self.home.update(dict.fromkeys(made.instructions, made))
        made.terminator, piece.terminator = piece.terminator, None
        made.is_barrier, piece.is_barrier = piece.is_barrier, False
        made.place, piece.place = piece.place, None
        made.successors, made.predecessors = piece.successors, [piece]
        piece.successors = [made]
        for after in made.successors:
            after.predecessors = [made if p is piece else p for p in after.predecessors]
            for phi in after.phis:
                self.incoming[phi] = [
                    (made if p is piece else p, value) for p, value in self.incoming[phi]
                ]
        return made

    @property
    def entry(self) -> Piece:
        """Return the first piece."""
        return self.pieces[0]

    @cached_property
    def registers(self) -> frozenset[str]:
        """Return the names of the special registers that the kernel reads."""
        called = (
            value.callee
            for value in self.home
            if isinstance(value, Instruction) and value.opcode == Opcode.CALL
        )
        return frozenset(
            name.removeprefix(REGISTERS) for name in called if name.startswith(REGISTERS)
        )

    def _new_piece(self, before: Piece | None = None) -> Piece:
        """Return a new last piece, or the next one after `before`."""
        piece = Piece(len(self.pieces))
        self.pieces.insert(piece.number if before is None else self.pieces.index(before) + 1, piece)
        if len(self.pieces) > _MOST_PIECES:
            msg = f"more than {_MOST_PIECES} parts"
            raise CannotCollapseError(msg)
        return piece

    def _following(self, piece: Piece) -> Piece:
        made = self._new_piece()
        piece.successors = [made]
        return made

    def _cut(self, function: Function) -> None:
        first: dict[int, Piece] = {}
        last: dict[int, Piece] = {}
        for block in function.blocks:
            first[block.handle] = piece = self._new_piece()
            for instruction in block.instructions:
                piece = self._add(piece, instruction)
            last[block.handle] = piece
        for handle, piece in last.items():
            if piece.terminator is not None and piece.terminator.opcode == Opcode.BR:
                found = dict.fromkeys(first[block] for block in piece.terminator.successors)
                piece.successors = list(found)
            for phi in first[handle].phis:
                self.incoming[phi] = [(last[block], value) for block, value in phi.incoming]
        for piece in self.pieces:
            for successor in piece.successors:
                successor.predecessors.append(piece)

    def _add(self, piece: Piece, instruction: Instruction) -> Piece:
        """Add an instruction; return the piece of the next instruction."""
        opcode = instruction.opcode
        if opcode == Opcode.PHI:
            piece.phis.append(instruction)
        elif opcode in (Opcode.RET, Opcode.BR, Opcode.UNREACHABLE):
            piece.terminator = instruction
        elif opcode == Opcode.CALL:
            return self._add_call(piece, instruction)
        elif opcode in (Opcode.RMW, Opcode.CMPXCHG, Opcode.FENCE):
            return self._alone(piece, instruction, is_serial=True)
        elif not _is_supported(opcode):
            msg = f"the instruction{instruction}"
            raise CannotCollapseError(msg)
        else:
            piece.instructions.append(instruction)
            self.operands[instruction] = instruction.operands
        self.home[instruction] = piece
        return piece

    def _add_call(self, piece: Piece, call: Instruction) -> Piece:
        name = call.callee
        if name.startswith(_IGNORED):
            return piece
        if name in _UNSUPPORTED:
            raise CannotCollapseError(_UNSUPPORTED[name])
        if name == BARRIER:
            piece.is_barrier = True
            place = call.operands[_PLACE]
            piece.place = None if isinstance(place, Instruction) else place
            return self._following(piece)
        if name.startswith(_COLLECTIVES):
            return self._alone(piece, call, is_serial=False)
        called = call.called
        is_pure = called is not None and called.is_pure
        if not is_pure and not name.startswith((REGISTERS, *SHARED_MEMORY)):
            return self._alone(piece, call, is_serial=True)
        piece.instructions.append(call)
        self.operands[call] = call.operands[:-1]
        self.home[call] = piece
        return piece

    def _alone(self, piece: Piece, instruction: Instruction, *, is_serial: bool) -> Piece:
        is_call = instruction.opcode == Opcode.CALL
        self.operands[instruction] = instruction.operands[: -1 if is_call else None]
        moved = self._own_addresses(piece, instruction) if is_serial else []
        own = piece if not piece.has_effect else self._following(piece)
        if is_serial:
            own.is_serial = True
            own.instructions = [*moved, instruction]
        else:
            own.collective = instruction
        self.home.update(dict.fromkeys((*moved, instruction), own))
        return self._following(own)

    def _own_addresses(self, piece: Piece, instruction: Instruction) -> list[Instruction]:
        """Remove from a piece the address computations that only a serial instruction uses; return them.

        The slot of a 32-bit index takes less memory than that of an address, and a loaded index takes none.
        """
        moved: list[Instruction] = []
        wanted: tuple[Value, ...] = self.operands[instruction]
        loads = _late_loads(piece)
        while wanted:
            found = [
                i
                for i in piece.instructions
                if i in wanted and i.has_one_use and (i.opcode in _ADDRESS_OPCODES or i in loads)
            ]
            moved = [*found, *moved]
            wanted = tuple(operand for i in found for operand in self.operands[i])
        piece.instructions = [i for i in piece.instructions if i not in moved]
        return moved

    def _check_ends(self) -> None:
        ends = [piece for piece in self.pieces if not piece.successors]
        reached = reached_from(ends, lambda piece: piece.predecessors)
        if len(reached) < len(reached_from([self.entry], lambda piece: piece.successors)):
            msg = "a loop without an end"
            raise CannotCollapseError(msg)

    @cached_property
    def dominators(self) -> dict[Piece, set[Piece]]:
        """Return the dominators of each piece, which include the piece."""
        return dominators_of(
            self.pieces, [self.entry], lambda p: p.predecessors, lambda p: p.successors
        )

    @cached_property
    def post_dominators(self) -> dict[Piece, set[Piece]]:
        """Return the post-dominators of each piece, which include the piece."""
        ends = [piece for piece in self.pieces if not piece.successors]
        return dominators_of(self.pieces, ends, lambda p: p.successors, lambda p: p.predecessors)

    def join_of(self, pieces: Iterable[Piece]) -> Piece | None:
        """Return the nearest common post-dominator of some pieces; None for the end of the kernel."""
        sets = [self.post_dominators[piece] - {piece} for piece in pieces]
        common = set.intersection(*sets)
        return max(common, key=lambda p: len(self.post_dominators[p])) if common else None

    @cached_property
    def loops(self) -> dict[Piece, set[Piece]]:
        """Return the pieces of each natural loop by its header."""
        found: dict[Piece, set[Piece]] = {}
        for piece in self.pieces:
            for header in piece.successors:
                if header in self.dominators[piece]:
                    body = found.setdefault(header, {header})
                    work = [piece]
                    while work:
                        other = work.pop()
                        if other not in body:
                            body.add(other)
                            work.extend(other.predecessors)
        return found

    def reach(self, starts: Iterable[Piece], *, until: Piece | None = None) -> set[Piece]:
        """Return the pieces that can be reached from `starts`, which are included, without passing `until`."""
        return reached_from(
            [piece for piece in starts if piece is not until],
            lambda piece: [next_ for next_ in piece.successors if next_ is not until],
        )

    def _topological_order(self) -> list[Piece]:
        """Return a topological order in which the exits of a loop follow all of its pieces.

        Raises CannotCollapseError for a loop with several entries.
        """
        before: dict[Piece, int] = dict.fromkeys(self.pieces, 0)
        edges: dict[Piece, set[Piece]] = {
            piece: {
                after
                for after in piece.successors
                if not (after in self.loops and piece in self.loops[after])
            }
            for piece in self.pieces
        }
        for body in self.loops.values():
            exits = {after for piece in body for after in piece.successors} - body
            for piece in body:
                edges[piece] |= exits
        for successors in edges.values():
            for after in successors:
                before[after] += 1
        ready = [0]
        order = []
        while ready:
            piece = self.pieces[heapq.heappop(ready)]
            order.append(piece)
            for after in edges[piece]:
                before[after] -= 1
                if before[after] == 0:
                    heapq.heappush(ready, after.number)
        if len(order) != len(self.pieces):
            msg = "a loop with several entries"
            raise CannotCollapseError(msg)
        return order


def _late_loads(piece: Piece) -> set[Instruction]:
    """Return the loads that may move to the end of a piece, because no store follows them."""
    found: set[Instruction] = set()
    for instruction in reversed(piece.instructions):
        if instruction.opcode == Opcode.STORE:
            break
        if instruction.opcode == Opcode.LOAD and not (
            instruction.is_atomic or instruction.flag("Volatile")
        ):
            found.add(instruction)
    return found


def _is_supported(opcode: int) -> bool:
    # LLVMOpcode: terminators other than br and ret; exceptions, variable arguments and tokens.
    return opcode not in {3, 4, 5, 6, 34, 47, 58, 59, 60, 61, 62, 63, 64, 65, 67}
