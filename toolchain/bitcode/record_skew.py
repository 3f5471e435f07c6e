"""Find records of a bitcode module that an older reader rejects or silently misinterprets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from msgspec import Struct, field

from mlir_offload.toolchain.bitcode.bitstream import Block, Record
from mlir_offload.toolchain.bitcode.block_reader import BlockReader
from mlir_offload.toolchain.bitcode.code import BlockId, ConstantCode, TypeCode
from mlir_offload.toolchain.bitcode.module import BitcodeModule
from mlir_offload.toolchain.bitcode.retained import RetainedNodes
from mlir_offload.toolchain.skew.fact import ORDERED_ACCESS, Consumer, Skew
from mlir_offload.toolchain.skew.limits import (
    LimitsTable,
    RetainedNode,
    load_limits,
    newest_numbers,
)

_CONSTANTS = {
    31: "getelementptr with inrange",
    32: "getelementptr",
    33: "ptrauth",
    34: "ptrauth",
}
_CONVERSIONS = {13: "ptrtoaddr"}
_DEBUG_RECORDS = range(61, 67)
# METADATA_EXPRESSION, the record of a DIExpression.
_EXPRESSION = 29
_INBOUNDS = 1
_FIRST_COMPARISON = 32  # The first icmp predicate; smaller ones are fcmp predicates.
_OPERATIONS = {17: "usub_cond", 18: "usub_sat", 19: "fmaximum", 20: "fminimum"}
_OPERATIONS |= {13: "fmax", 14: "fmin", 15: "uinc_wrap", 16: "udec_wrap"}
# A forward reference is a negative relative number, in 32 bits, followed by the type.
_FIRST_FORWARD = 1 << 31
_DEEPEST = 8
# Integers of up to 64 bits are stored with the sign in the lowest bit.
_WORD_BITS = 64
_SIGN = 1
# The first ordering that orders other accesses; unordered and monotonic are below.
_ACQUIRE = 3


class FunctionCode:
    """Record codes of a FUNCTION block whose operands depend on the release."""

    CAST = 3
    LOAD = 20
    CALL = 34
    FENCE = 36
    LOAD_ATOMIC = 41
    STORE_ATOMIC = 45
    COMPARE = 28
    GET_ELEMENT_POINTER = 43
    ATOMIC = 59


# Records that are not instructions, but describe the preceding instruction or the function.
_NO_INSTRUCTIONS = {1, 33, 35, 55, 60, *_DEBUG_RECORDS}
_LOADS = (FunctionCode.LOAD, FunctionCode.LOAD_ATOMIC)
# The kind IDs of !noundef and !range in all releases (llvm/IR/FixedMetadataKinds.def).
_NOUNDEF = 29
_RANGE = 4
# Flags of a call: the record contains the function type (since LLVM 3.7), and fast-math flags precede the type.
_EXPLICIT_TYPE, _FAST_MATH = 1 << 15, 1 << 17


_Look = Callable[["_RecordWalk", Record, str], None]


def check_records(module: BitcodeModule, consumer: Consumer) -> Iterator[Skew]:
    """Yield each construct that the consumer's reader does not support, once, with a function that contains it."""
    known = _known_records(module.triple, consumer.llvm)
    nodes = RetainedNodes(known.newer_nodes) if known.newer_nodes else None
    walk = _RecordWalk(module, consumer, known, nodes)
    for block in module.content.constants:
        walk.enter(block, "")
    for block in module.content.metadata:
        walk.enter(block, "")
    defined = (function for function in module.functions if not function.is_declaration)
    for one, body in zip(defined, module.content.bodies, strict=False):
        walk.enter(body, one.name)
    yield from walk.found.values()


class _KnownRecords(Struct, frozen=True):
    """The limits of a release for modules of one target.

    `looks` are the check functions by block ID. `newer_nodes` are the debug info nodes that the release rejects
    in retainedNodes, by record code.
    """

    limits: LimitsTable
    newest: Mapping[str, int]
    looks: Mapping[int, _Look]
    newer_nodes: Mapping[int, RetainedNode]
    fence_since: int


class _RecordWalk(Struct):
    """The state of a pass over the records of a module. `found` maps rule and construct to a finding."""

    module: BitcodeModule
    consumer: Consumer
    known: _KnownRecords
    nodes: RetainedNodes | None
    # The type ID of the next constants.
    type: int = 0
    # The number of instructions of the function so far, and the IDs of loads and of calls that return vectors.
    instructions: int = 0
    loads: set[int] = field(default_factory=set)
    vectors: set[int] = field(default_factory=set)
    found: dict[tuple[str, str], Skew] = field(default_factory=dict)

    def enter(self, block: Block, function: str, depth: int = 0) -> None:
        """Check all records of a block and of its nested blocks."""
        kind = block.number
        look = self.known.looks.get(kind)
        outer = self.nodes
        if kind == BlockId.FUNCTION:
            self.instructions = 0
            self.loads.clear()
            self.vectors.clear()
        elif depth and outer and kind == BlockId.METADATA:
            self.nodes = outer.inner()
        for entry in BlockReader(self.module.content.stream, block):
            if isinstance(entry, Block):
                if depth < _DEEPEST:
                    self.enter(entry, function, depth + 1)
            elif look is not None:
                look(self, entry, function)
        if self.nodes and kind == BlockId.METADATA:
            for row in sorted(self.nodes.unread(), key=lambda row: row.code):
                self._add("BC034", f"{row.node} in retainedNodes", function, {"needed": row.since})
        self.nodes = outer

    def _constant(self, record: Record, function: str) -> None:
        code = record.code
        if code == ConstantCode.SET_TYPE:
            self.type = record.operand(0, "type")
        elif code == ConstantCode.INTEGER:
            self._integer(record, function)
        elif code == ConstantCode.CAST:
            opcode = record.operand(0, "opcode")
            if opcode > self.known.newest["cast_opcodes"]:
                self._constant_found(_CONVERSIONS.get(opcode, "a conversion"), record, function)
        elif code > self.known.newest["constant_codes"]:
            self._constant_found(_CONSTANTS.get(code, "of a later release"), record, function)

    def _integer(self, record: Record, function: str) -> None:
        since = self.known.limits.sign_extended_since
        bits = self.module.types[self.type].number
        if (
            bits > _WORD_BITS
            and record.operand(0, "integer") & _SIGN
            and self.consumer.llvm >= since
        ):
            self._add("BC029", "an integer", function, {"bits": bits, "before": since - 1})

    def _constant_found(self, construct: str, record: Record, function: str) -> None:
        self._add("BC012", construct, function, {"code": record.code})

    def _expression(self, record: Record, function: str) -> None:
        """Report a DIExpression operation that the release does not have."""
        place = 1
        while place < record.count:
            number = record.operand(place, "operation")
            row = self.known.limits.debug_operations.get(number)
            if row is not None and row.since > self.consumer.llvm:
                self._add("BC034", row.name, function, {"needed": row.since})
            place += 1 + self.known.limits.debug_arguments.get(number, 0)

    def _metadata(self, record: Record, function: str) -> None:
        if self.nodes:
            self.nodes.add(record)
        if record.code == _EXPRESSION:
            self._expression(record, function)
        steps = self.known.limits.newest["metadata_codes"]
        if record.code > steps.at(self.consumer.llvm):
            # The reader skips the record, so that all later metadata IDs are wrong.
            needed = steps.first_release(record.code) or "of a later release"
            self._add("BC017", f"record {record.code}", function, {"needed": needed})
        debug = self.known.limits.debug_records.get(record.code)
        if debug is None:
            return
        newest = debug.operands.at(self.consumer.llvm)
        if record.count > newest:
            values: dict[str, object] = {
                "needed": debug.operands.first_release(record.count) or "of a later release"
            }
            self._add("BC017", debug.name, function, values)

    def _instruction(self, record: Record, function: str) -> None:
        look = _INSTRUCTIONS.get(record.code)
        if look is not None:
            look(self, record, function)
        elif record.code > self.known.newest["function_codes"]:
            needed = self.known.limits.newest["function_codes"].first_release(record.code)
            is_debug = record.code in _DEBUG_RECORDS
            construct = "#dbg_value" if is_debug else f"record {record.code}"
            values: dict[str, object] = {"needed": needed or "of a later release"}
            self._add("BC017" if is_debug else "BC021", construct, function, values)

    def _counted(self, record: Record, function: str) -> None:
        if record.code in _LOADS:
            self.loads.add(self.instructions)
        elif record.code == FunctionCode.CALL and self._returns_vector(record):
            self.vectors.add(self.instructions)
        self.instructions += record.code not in _NO_INSTRUCTIONS
        self._instruction(record, function)

    def _attachment(self, record: Record, function: str) -> None:
        # An attachment of an instruction has an odd count, because it begins with the instruction ID.
        if not record.count % 2:
            return
        kinds = {record.operand(place, "kind") for place in range(1, record.count, 2)}
        release, place = self.consumer.llvm, record.operand(0, "instruction")
        is_new = release >= self.known.limits.noundef_of_loads_since
        if is_new and _NOUNDEF in kinds and place not in self.loads:
            self._add("BC030", "!noundef", function, {})
        since = self.known.limits.vector_range_since
        if release < since and _RANGE in kinds and place in self.vectors:
            self._add("BC036", "!range", function, {"needed": since})

    def _returns_vector(self, record: Record) -> bool:
        flags = record.operand(1, "calling convention")
        if not flags & _EXPLICIT_TYPE:
            return False
        place = 3 if flags & _FAST_MATH else 2
        kind = self.module.types.function(record.operand(place, "type of the function"))
        return self.module.types[kind.elements[0]].code == TypeCode.VECTOR

    def _ordered(self, record: Record, function: str) -> None:
        # The operand after the ordering, the last one, is the synchronization scope.
        orders = record.count > 1 and record.operand(record.count - 2, "ordering") >= _ACQUIRE
        if orders and self.consumer.llvm < self.known.fence_since:
            self._add("BC025", ORDERED_ACCESS, function, {"needed": self.known.fence_since})

    def _address(self, record: Record, function: str) -> None:
        flags = record.operand(0, "flags")
        since = self.known.limits.instruction_flags["getelementptr"]
        if self.consumer.llvm < since and flags and not flags & _INBOUNDS:
            self._add("BC020", "getelementptr", function, {"needed": since})

    def _conversion(self, record: Record, function: str) -> None:
        place = 2 + _is_forward(record.operand(0, "value"))
        opcode = record.operand(place, "opcode")
        if opcode > self.known.newest["cast_opcodes"]:
            name = _CONVERSIONS.get(opcode, f"conversion {opcode}")
            self._add(
                "BC021",
                name,
                function,
                {"needed": self.known.limits.newest["cast_opcodes"].first_release(opcode)},
            )
        elif record.count > place + 1:
            self._flagged("cast", "a flag of a conversion (nneg, nuw, fast)", function)

    def _comparison(self, record: Record, function: str) -> None:
        place = 2 + _is_forward(record.operand(0, "value"))
        if record.operand(place, "predicate") >= _FIRST_COMPARISON and record.count > place + 1:
            self._flagged("compare", "icmp samesign", function)

    def _flagged(self, name: str, construct: str, function: str) -> None:
        since = self.known.limits.instruction_flags[name]
        if self.consumer.llvm < since:
            self._add("BC021", construct, function, {"needed": since})

    def _atomic(self, record: Record, function: str) -> None:
        # A type follows the pointer, and the value, if it is a forward reference.
        place = 1 + _is_forward(record.operand(0, "pointer"))
        place += 1 + _is_forward(record.operand(place, "value"))
        operation = record.operand(place, "operation")
        if operation > self.known.newest["atomic_operations"]:
            name = f"atomicrmw {_OPERATIONS.get(operation, operation)}"
            self._add(
                "BC021",
                name,
                function,
                {"needed": self.known.limits.newest["atomic_operations"].first_release(operation)},
            )

    def _add(self, rule: str, construct: str, function: str, values: dict[str, object]) -> None:
        values |= {"construct": construct, "consumer": self.consumer.llvm}
        self.found.setdefault((rule, construct), Skew(rule, values, function))


_INSTRUCTIONS: dict[int, _Look] = {
    FunctionCode.GET_ELEMENT_POINTER: _RecordWalk._address,  # noqa: SLF001 (of this module)
    FunctionCode.CAST: _RecordWalk._conversion,  # noqa: SLF001
    FunctionCode.COMPARE: _RecordWalk._comparison,  # noqa: SLF001
    FunctionCode.ATOMIC: _RecordWalk._atomic,  # noqa: SLF001
    FunctionCode.FENCE: _RecordWalk._ordered,  # noqa: SLF001
    FunctionCode.LOAD_ATOMIC: _RecordWalk._ordered,  # noqa: SLF001
    FunctionCode.STORE_ATOMIC: _RecordWalk._ordered,  # noqa: SLF001
}


_LOOKS: dict[int, _Look] = {
    BlockId.CONSTANTS: _RecordWalk._constant,  # noqa: SLF001
    BlockId.METADATA: _RecordWalk._metadata,  # noqa: SLF001
    BlockId.FUNCTION: _RecordWalk._instruction,  # noqa: SLF001
}
# If attachments of instructions are checked, instructions must be counted to identify them.
_COUNTING: dict[int, _Look] = {
    **_LOOKS,
    BlockId.FUNCTION: _RecordWalk._counted,  # noqa: SLF001
    BlockId.METADATA_ATTACHMENT: _RecordWalk._attachment,  # noqa: SLF001
}


@lru_cache(maxsize=64)
def _known_records(triple: str, release: int) -> _KnownRecords:
    limits = load_limits()
    is_counting = release >= limits.noundef_of_loads_since or release < limits.vector_range_since
    nodes = {code: row for code, row in limits.retained_nodes.items() if row.since > release}
    return _KnownRecords(
        limits,
        newest_numbers(release),
        _COUNTING if is_counting else _LOOKS,
        nodes,
        limits.back_end_since(triple, "fence"),
    )


def _is_forward(value: int) -> bool:
    return value >= _FIRST_FORWARD
