"""LLVM modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlir_offload.toolchain.llvmc.ir import Context, Function, Type
from mlir_offload.toolchain.llvmc.library import LlvmError, handles


def parse_module(context: Context, text: str, name: str) -> Module:
    """Parse LLVM IR. Raises LlvmError, with a location in `name`, if the text is invalid."""
    data, library = text.encode("utf-8", "surrogateescape"), context.library
    buffer = library.call("CreateMemoryBufferWithMemoryRangeCopy", data, len(data), name.encode())
    return Module(context, library.checked("ParseIRInContext", context.handle, buffer))


class Module:
    """A module of a context."""

    def __init__(self, context: Context, handle: int) -> None:
        """Wrap a handle; use parse_module."""
        self.context = context
        self.handle = handle

    def __str__(self) -> str:
        """Return the module as LLVM IR."""
        library = self.context.library
        return library.take_text(library.call("PrintModuleToString", self.handle))

    def verify(self) -> None:
        """Raise LlvmError if the module is not valid."""
        self.context.library.checked("VerifyModule", self.handle, 2)

    @property
    def functions(self) -> Iterator[Function]:
        """Return the functions, including declarations, in order."""
        library = self.context.library
        handle = library.call("GetFirstFunction", self.handle)
        while handle:
            following = library.call("GetNextFunction", handle)
            yield Function(self.context, handle)
            handle = following

    def function(self, name: str) -> Function | None:
        """Return the function with a name, None if there is none."""
        handle = self.context.library.call("GetNamedFunction", self.handle, name.encode())
        return Function(self.context, handle) if handle else None

    def declare(self, name: str, type_: Type) -> Function:
        """Return the function with a name; declare it if there is none."""
        found = self.function(name)
        if found is not None:
            return found
        made = self.context.library.call("AddFunction", self.handle, name.encode(), type_.handle)
        return Function(self.context, made)

    def intrinsic(self, name: str, types: Sequence[Type]) -> Function:
        """Return an intrinsic for overloaded types, with the parameters that it has in this release."""
        library = self.context.library
        number = library.call("LookupIntrinsicID", name.encode(), len(name))
        array = handles([type_.handle for type_ in types])
        made = library.call("GetIntrinsicDeclaration", self.handle, number, array, len(types))
        return Function(self.context, made)

    def named_node(self, name: str) -> int:
        """Return the first operand of named metadata, 0 if there is none."""
        library = self.context.library
        count = library.call("GetNamedMetadataNumOperands", self.handle, name.encode())
        found = handles([0] * count)
        library.call("GetNamedMetadataOperands", self.handle, name.encode(), found)
        return library.call("ValueAsMetadata", found[0]) if count else 0

    def size_bytes(self, type_: Type) -> int:
        """Return the ABI size of the type in bytes, which is the element stride in arrays."""
        return self.context.library.call("ABISizeOfType", self._layout, type_.handle)

    def alignment(self, type_: Type) -> int:
        """Return the ABI alignment of the type in bytes."""
        return self.context.library.call("ABIAlignmentOfType", self._layout, type_.handle)

    @property
    def _layout(self) -> int:
        return self.context.library.call("GetModuleDataLayout", self.handle)

    def link(self, other: Module) -> None:
        """Link another module of the context into this one. Raises LlvmError if that fails."""
        if self.context.library.call("LinkModules2", self.handle, other.handle):
            msg = "two modules cannot be linked"
            raise LlvmError(msg)
        other.handle = 0

    def bitcode(self) -> bytes:
        """Return the module as bitcode."""
        library = self.context.library
        return library.take_buffer(library.call("WriteBitcodeToMemoryBuffer", self.handle))
