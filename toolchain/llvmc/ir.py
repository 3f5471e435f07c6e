"""LLVM contexts, types, values, functions and blocks. A context owns the objects that are created in it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Self

from mlir_offload.toolchain.llvmc.code import Opcode, TypeKind
from mlir_offload.toolchain.llvmc.library import LlvmLibrary, handles

# LLVMValueKind of llvm-c/Core.h.
_CONSTANT_INT, _INSTRUCTION = 18, 24
_INTERNAL = 8
_FUNCTION_INDEX = 0xFFFFFFFF


class Context:
    """An LLVM context. Use it as a context manager, which disposes of the context and its modules."""

    def __init__(self, library: LlvmLibrary) -> None:
        """Create an empty context."""
        self.library = library
        self.handle = library.call("ContextCreate")
        self._known: dict[int, Value] = {}
        self._types: dict[int, Type] = {}

    def __enter__(self) -> Self:
        """Return the context."""
        return self

    def __exit__(self, *_: object) -> None:
        """Dispose of the context and all modules."""
        self.library.call("ContextDispose", self.handle)
        self.handle = 0

    def type_of(self, handle: int) -> Type:
        """Return the type with a handle; equal handles return the same object."""
        found = self._types.get(handle)
        if found is None:
            found = self._types[handle] = Type(self, handle)
        return found

    def value(self, handle: int) -> Value:
        """Return the value with a handle; equal handles return the same object."""
        found = self._known.get(handle)
        if found is None:
            is_instruction = self.library.call("GetValueKind", handle) == _INSTRUCTION
            found = Instruction(self, handle) if is_instruction else Value(self, handle)
            self._known[handle] = found
        return found

    def forget_all(self) -> None:
        """Invalidate all values, because LLVM may have deleted any of them."""
        for value in self._known.values():
            value.handle = 0
        self._known = {}

    def integer(self, bits: int) -> Type:
        """Return an integer type."""
        return self.type_of(self.library.call("IntTypeInContext", self.handle, bits))

    @property
    def pointer(self) -> Type:
        """Return the type `ptr`."""
        return self.type_of(self.library.call("PointerTypeInContext", self.handle, 0))

    @property
    def void(self) -> Type:
        """Return the type `void`."""
        return self.type_of(self.library.call("VoidTypeInContext", self.handle))

    def constant(self, type_: Type, number: int) -> Value:
        """Return an integer constant, truncated to the width of its type."""
        made = self.library.call("ConstInt", type_.handle, number & (2**64 - 1), 0)
        return self.value(made)

    def constant_vector(self, elements: Sequence[Value]) -> Value:
        """Return a vector of constants."""
        array = handles([element.handle for element in elements])
        return self.value(self.library.call("ConstVector", array, len(elements)))

    def function_type(self, result: Type, parameters: Sequence[Type]) -> Type:
        """Return a function type."""
        array = handles([parameter.handle for parameter in parameters])
        return self.type_of(
            self.library.call("FunctionType", result.handle, array, len(parameters), 0)
        )

    def as_value(self, metadata: int) -> int:
        """Return metadata wrapped as a value, the form in which instructions take it."""
        return self.library.call("MetadataAsValue", self.handle, metadata)


class Type:
    """A type. Equal types are the same object."""

    __slots__ = ("context", "handle", "kind")

    def __init__(self, context: Context, handle: int) -> None:
        """Wrap a handle; use Context.type_of."""
        self.context = context
        self.handle = handle
        self.kind = context.library.call("GetTypeKind", handle)

    @property
    def bits(self) -> int:
        """Return the width of an integer type, 0 for another type."""
        is_integer = self.kind == TypeKind.INTEGER
        return self.context.library.call("GetIntTypeWidth", self.handle) if is_integer else 0

    @property
    def members(self) -> tuple[Type, ...]:
        """Return the types of the members of a structure."""
        library = self.context.library
        count = library.call("CountStructElementTypes", self.handle)
        return tuple(
            self.context.type_of(library.call("StructGetTypeAtIndex", self.handle, number))
            for number in range(count)
        )

    @property
    def null(self) -> Value:
        """Return the zero initializer of the type."""
        return self.context.value(self.context.library.call("ConstNull", self.handle))

    @property
    def poison(self) -> Value:
        """Return poison of the type."""
        return self.context.value(self.context.library.call("GetPoison", self.handle))

    def array(self, count: int) -> Type:
        """Return the array type with this element type."""
        return self.context.type_of(self.context.library.call("ArrayType2", self.handle, count))

    def vector(self, count: int) -> Type:
        """Return the vector type with this element type."""
        return self.context.type_of(self.context.library.call("VectorType", self.handle, count))

    def __str__(self) -> str:
        """Return the type as LLVM prints it."""
        library = self.context.library
        return library.take_text(library.call("PrintTypeToString", self.handle))


class Value:
    """A value: a constant, an argument, a function or an instruction. Equal values are the same object."""

    __slots__ = ("_type", "context", "handle")

    def __init__(self, context: Context, handle: int) -> None:
        """Wrap a handle; use Context.value."""
        self.context = context
        self.handle = handle
        self._type: Type | None = None

    @property
    def type(self) -> Type:
        """Return the type."""
        if self._type is None:
            self._type = self.context.type_of(self.context.library.call("TypeOf", self.handle))
        return self._type

    @property
    def name(self) -> str:
        """Return the name, an empty string if the value has none."""
        size = ctypes.c_size_t()
        text = self.context.library.call("GetValueName2", self.handle, ctypes.byref(size))
        return ctypes.string_at(text, size.value).decode("utf-8", "surrogateescape")

    @property
    def has_one_use(self) -> bool:
        """Return whether the value has exactly one use."""
        use = self.context.library.call("GetFirstUse", self.handle)
        return bool(use) and not self.context.library.call("GetNextUse", use)

    @property
    def is_constant(self) -> bool:
        """Return whether the value is a constant. Functions and global variables are constants."""
        return bool(self.context.library.call("IsConstant", self.handle))

    @property
    def number(self) -> int | None:
        """Return an integer constant of up to 64 bits, sign-extended; None for any other value."""
        library = self.context.library
        if library.call("GetValueKind", self.handle) != _CONSTANT_INT or self.type.bits > 64:  # noqa: PLR2004
            return None
        return library.call("ConstIntGetSExtValue", self.handle)

    def __str__(self) -> str:
        """Return the value as LLVM prints it."""
        library = self.context.library
        return library.take_text(library.call("PrintValueToString", self.handle))


class Instruction(Value):
    """An instruction."""

    __slots__ = ("opcode",)

    def __init__(self, context: Context, handle: int) -> None:
        """Wrap a handle; use Block.instructions."""
        super().__init__(context, handle)
        self.opcode = context.library.call("GetInstructionOpcode", handle)

    @property
    def operands(self) -> tuple[Value, ...]:
        """Return the operands. The last operand of a call is the function."""
        library, handle = self.context.library, self.handle
        count = library.call("GetNumOperands", handle)
        return tuple(
            self.context.value(library.call("GetOperand", handle, number))
            for number in range(count)
        )

    @property
    def called(self) -> Function | None:
        """Return the called function; None for an indirect call and for inline assembly."""
        called = self.context.library.call("GetCalledValue", self.handle)
        is_function = self.context.library.call("IsAFunction", called)
        return Function(self.context, called) if is_function else None

    @property
    def callee(self) -> str:
        """Return the name of the called function, an empty string if `called` is None."""
        called = self.called
        return called.name if called else ""

    @property
    def alignment(self) -> int:
        """Return the alignment of a load, a store or an alloca in bytes."""
        return self.context.library.call("GetAlignment", self.handle)

    @property
    def is_atomic(self) -> bool:
        """Return whether a load or a store is atomic."""
        return bool(self.context.library.call("GetOrdering", self.handle))

    @property
    def successors(self) -> tuple[int, ...]:
        """Return the handles of the successor blocks of a terminator."""
        library = self.context.library
        count = library.call("GetNumSuccessors", self.handle)
        return tuple(library.call("GetSuccessor", self.handle, n) for n in range(count))

    @property
    def incoming(self) -> tuple[tuple[int, Value], ...]:
        """Return the incoming blocks (as handles) and values of a phi node."""
        library, handle = self.context.library, self.handle
        return tuple(
            (
                library.call("GetIncomingBlock", handle, n),
                self.context.value(library.call("GetIncomingValue", handle, n)),
            )
            for n in range(library.call("CountIncoming", handle))
        )

    @property
    def predicate(self) -> int:
        """Return the predicate of an icmp, a `Predicate`."""
        return self.context.library.call("GetICmpPredicate", self.handle)

    @property
    def update(self) -> int:
        """Return the operation of an atomicrmw, a `RmwUpdate`."""
        return self.context.library.call("GetAtomicRMWBinOp", self.handle)

    @property
    def first_index(self) -> int:
        """Return the first index of an extractvalue."""
        found = self.context.library.call("GetIndices", self.handle)
        return int(ctypes.cast(found, ctypes.POINTER(ctypes.c_uint))[0])

    def flag(self, name: str) -> bool:
        """Return a flag: NSW, NUW or Volatile."""
        return bool(self.context.library.call(f"Get{name}", self.handle))

    def drop_poison_flags(self) -> None:
        """Clear the flags that let the result be poison, such as nsw and inbounds; not those of an icmp."""
        for setter in _POISON_FLAGS.get(self.opcode, ()):
            self.context.library.call(setter, self.handle, 0)

    @property
    def location(self) -> int:
        """Return the handle of the debug location, 0 if there is none."""
        return self.context.library.call("InstructionGetDebugLoc", self.handle)

    def mark(self, kind: int, node: int) -> None:
        """Attach a metadata node; 0 removes the attachment."""
        value = self.context.as_value(node) if node else None
        self.context.library.call("SetMetadata", self.handle, kind, value)


_NO_WRAP = ("SetNSW", "SetNUW")
_POISON_FLAGS: dict[int, tuple[str, ...]] = {
    **dict.fromkeys((Opcode.ADD, Opcode.SUB, Opcode.MUL, Opcode.SHL, Opcode.TRUNC), _NO_WRAP),
    **dict.fromkeys((Opcode.LSHR, Opcode.UDIV), ("SetExact",)),
    Opcode.OR: ("SetIsDisjoint",),
    Opcode.ZEXT: ("SetNNeg",),
    Opcode.GEP: ("GEPSetNoWrapFlags",),
}


class Function(Value):
    """A function of a module."""

    __slots__ = ()

    @property
    def is_declaration(self) -> bool:
        """Return whether the function has no body."""
        return bool(self.context.library.call("IsDeclaration", self.handle))

    @property
    def function_type(self) -> Type:
        """Return the type of the function."""
        return self.context.type_of(self.context.library.call("GlobalGetValueType", self.handle))

    @property
    def parameters(self) -> tuple[Value, ...]:
        """Return the parameters."""
        library = self.context.library
        count = library.call("CountParams", self.handle)
        return tuple(
            self.context.value(library.call("GetParam", self.handle, n)) for n in range(count)
        )

    @property
    def blocks(self) -> Iterator[Block]:
        """Return the basic blocks in order."""
        library = self.context.library
        block = library.call("GetFirstBasicBlock", self.handle)
        while block:
            yield Block(self.context, block)
            block = library.call("GetNextBasicBlock", block)

    def append_block(self, name: str) -> Block:
        """Append an empty block."""
        context = self.context
        made = context.library.call(
            "AppendBasicBlockInContext", context.handle, self.handle, name.encode()
        )
        return Block(context, made)

    def make_internal(self) -> None:
        """Give the function internal linkage."""
        self.context.library.call("SetLinkage", self.handle, _INTERNAL)

    def add_attribute(self, name: str) -> None:
        """Add an enum attribute to the function."""
        context = self.context
        kind = _attribute_kind(context, name)
        made = context.library.call("CreateEnumAttribute", context.handle, kind, 0)
        context.library.call("AddAttributeAtIndex", self.handle, _FUNCTION_INDEX, made)

    def remove_attribute(self, name: str) -> None:
        """Remove an attribute of the function."""
        kind = _attribute_kind(self.context, name)
        self.context.library.call("RemoveEnumAttributeAtIndex", self.handle, _FUNCTION_INDEX, kind)

    def has_attribute(self, name: str, *, parameter: int | None = None) -> bool:
        """Return whether the function, or one of its parameters, has an attribute."""
        kind = _attribute_kind(self.context, name)
        index = _FUNCTION_INDEX if parameter is None else parameter + 1
        found = self.context.library.call("GetEnumAttributeAtIndex", self.handle, index, kind)
        return bool(found)

    @property
    def subprogram(self) -> int:
        """Return the handle of the DISubprogram of the function, 0 if there is none."""
        return self.context.library.call("GetSubprogram", self.handle)

    @property
    def is_pure(self) -> bool:
        """Return whether the function neither reads nor writes memory."""
        library, kind = self.context.library, _attribute_kind(self.context, "memory")
        found = library.call("GetEnumAttributeAtIndex", self.handle, _FUNCTION_INDEX, kind)
        return bool(found) and library.call("GetEnumAttributeValue", found) == 0

    def set_subprogram(self, subprogram: int) -> None:
        """Set the DISubprogram of the function."""
        self.context.library.call("SetSubprogram", self.handle, subprogram)

    def delete(self) -> None:
        """Delete the function, which must be unused, from its module, and invalidate all values."""
        self.context.library.call("DeleteFunction", self.handle)
        self.handle = 0
        self.context.forget_all()


class Block:
    """A basic block."""

    __slots__ = ("context", "handle")

    def __init__(self, context: Context, handle: int) -> None:
        """Wrap a handle."""
        self.context = context
        self.handle = handle

    @property
    def instructions(self) -> Iterator[Instruction]:
        """Return the instructions in order."""
        library = self.context.library
        handle = library.call("GetFirstInstruction", self.handle)
        while handle:
            following = library.call("GetNextInstruction", handle)
            found = self.context.value(handle)
            if isinstance(found, Instruction):
                yield found
            handle = following


def _attribute_kind(context: Context, name: str) -> int:
    return context.library.call("GetEnumAttributeKindForName", name.encode(), len(name))
