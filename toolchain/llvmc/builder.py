"""An instruction builder that appends to blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from mlir_offload.toolchain.llvmc.code import Opcode, Predicate
from mlir_offload.toolchain.llvmc.ir import Block, Context, Function, Instruction, Type, Value
from mlir_offload.toolchain.llvmc.library import handles


class Builder:
    """Appends instructions to a block. Use it as a context manager, which disposes of it."""

    def __init__(self, context: Context) -> None:
        """Create a builder without an insertion point."""
        self.context = context
        self.handle = context.library.call("CreateBuilderInContext", context.handle)

    def __enter__(self) -> Self:
        """Return the builder."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the builder."""
        self.context.library.call("DisposeBuilder", self.handle)
        self.handle = 0

    def go(self, block: Block) -> None:
        """Set the insertion point to the end of a block."""
        self.context.library.call("PositionBuilderAtEnd", self.handle, block.handle)

    @property
    def block(self) -> Block:
        """Return the block of the insertion point."""
        return Block(self.context, self.context.library.call("GetInsertBlock", self.handle))

    def _made(self, name: str, *arguments: object) -> Instruction:
        library = self.context.library
        return Instruction(self.context, library.call(f"Build{name}", self.handle, *arguments))

    def _folded(self, name: str, *arguments: object) -> Value:
        """Append an instruction and return its value, which the builder may fold to a constant."""
        library = self.context.library
        return self.context.value(library.call(f"Build{name}", self.handle, *arguments))

    def clone(self, instruction: Instruction, operands: Sequence[Value | None]) -> Instruction:
        """Append a copy of an instruction with new operands; None keeps the operand."""
        library = self.context.library
        copy = library.call("InstructionClone", instruction.handle)
        for number, operand in enumerate(operands):
            if operand is not None:
                library.call("SetOperand", copy, number, operand.handle)
        library.call("InsertIntoBuilderWithName", self.handle, copy, b"")
        return Instruction(self.context, copy)

    def clone_without_flags(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        """Append a copy of an instruction, without the flags that let its result be poison."""
        if instruction.opcode == Opcode.ICMP:
            # LLVM 19 has no function for `samesign`.
            return self.compare(Predicate(instruction.predicate), *operands)
        copy = self.clone(instruction, operands)
        copy.drop_poison_flags()
        return copy

    def alloca(self, type_: Type, name: str, *, align: int) -> Value:
        """Append an alloca."""
        made = self._made("Alloca", type_.handle, name.encode())
        self.context.library.call("SetAlignment", made.handle, align)
        return made

    def load(self, type_: Type, address: Value, *, align: int = 0) -> Instruction:
        """Append a load."""
        made = self._made("Load2", type_.handle, address.handle, b"")
        if align:
            self.context.library.call("SetAlignment", made.handle, align)
        return made

    def store(self, value: Value, address: Value, *, align: int = 0) -> Instruction:
        """Append a store."""
        made = self._made("Store", value.handle, address.handle)
        if align:
            self.context.library.call("SetAlignment", made.handle, align)
        return made

    def offset(self, type_: Type, base: Value, *indices: Value, is_inbounds: bool = True) -> Value:
        """Append a getelementptr."""
        array = handles([index.handle for index in indices])
        name = "InBoundsGEP2" if is_inbounds else "GEP2"
        return self._folded(name, type_.handle, base.handle, array, len(indices), b"")

    def binary(self, opcode: Opcode, left: Value, right: Value) -> Value:
        """Append a binary operation."""
        return self._folded("BinOp", int(opcode), left.handle, right.handle, b"")

    def next_number(self, number: Value) -> Value:
        """Append the addition of 1, which must not overflow, be the number signed or not."""
        one = self.context.constant(number.type, 1)
        made = self.binary(Opcode.ADD, number, one)
        for flag in ("NUW", "NSW"):
            self.context.library.call(f"Set{flag}", made.handle, 1)
        return made

    def compare(self, predicate: Predicate, left: Value, right: Value) -> Value:
        """Append an integer comparison."""
        return self._folded("ICmp", int(predicate), left.handle, right.handle, b"")

    def select(self, condition: Value, then: Value, other: Value) -> Value:
        """Append a select."""
        return self._folded("Select", condition.handle, then.handle, other.handle, b"")

    def cast(self, opcode: Opcode, value: Value, type_: Type) -> Value:
        """Append a cast. Return the value itself if it already has the type."""
        if value.type is type_:
            return value
        return self._folded("Cast", int(opcode), value.handle, type_.handle, b"")

    def shuffle(self, first: Value, second: Value, mask: Value) -> Value:
        """Append a shufflevector."""
        return self._folded("ShuffleVector", first.handle, second.handle, mask.handle, b"")

    def splat(self, value: Value, count: int) -> Value:
        """Append a splat: a vector with the value in each element."""
        empty = value.type.vector(count).poison
        number = self.context.integer(32)
        first = self._folded(
            "InsertElement",
            empty.handle,
            value.handle,
            self.context.constant(number, 0).handle,
            b"",
        )
        return self.shuffle(first, empty, number.vector(count).null)

    def element(self, vector: Value, number: Value) -> Value:
        """Append an extractelement."""
        return self._folded("ExtractElement", vector.handle, number.handle, b"")

    def insert_value(self, whole: Value, part: Value, number: int) -> Value:
        """Append an insertvalue."""
        return self._folded("InsertValue", whole.handle, part.handle, number, b"")

    def phi(self, type_: Type) -> Instruction:
        """Append a phi node without incoming values."""
        return self._made("Phi", type_.handle, b"")

    def add_incoming(self, phi: Value, value: Value, block: Block) -> None:
        """Add an incoming value and its block to a phi node."""
        self.context.library.call(
            "AddIncoming", phi.handle, handles([value.handle]), handles([block.handle]), 1
        )

    def call(self, function: Function, arguments: Sequence[Value]) -> Instruction:
        """Append a call."""
        array = handles([argument.handle for argument in arguments])
        type_ = function.function_type
        return self._made("Call2", type_.handle, function.handle, array, len(arguments), b"")

    def mark_line(self, location: int) -> None:
        """Append a `nop` with a debug location."""
        library, context = self.context.library, self.context
        type_ = context.function_type(context.void, ())
        asm = library.call("GetInlineAsm", type_.handle, b"nop", 3, b"", 0, 1, 0, 0, 0)
        made = self._made("Call2", type_.handle, asm, handles(()), 0, b"")
        library.call("InstructionSetDebugLoc", made.handle, location)

    def jump(self, block: Block) -> Instruction:
        """Append an unconditional branch."""
        return self._made("Br", block.handle)

    def branch(self, condition: Value, then: Block, other: Block) -> Instruction:
        """Append a conditional branch."""
        return self._made("CondBr", condition.handle, then.handle, other.handle)

    def switch(self, value: Value, other: Block, cases: Sequence[tuple[int, Block]]) -> None:
        """Append a switch with the default block `other`."""
        made = self._made("Switch", value.handle, other.handle, len(cases))
        for number, block in cases:
            constant = self.context.constant(value.type, number)
            self.context.library.call("AddCase", made.handle, constant.handle, block.handle)

    def ret(self) -> None:
        """Append `ret void`."""
        self._made("RetVoid")
