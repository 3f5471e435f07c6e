"""Read the offload data in a host module in bitcode: embedded images and entries."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mlir_offload.toolchain.bitcode.constant import ConstantTable
from mlir_offload.toolchain.bitcode.global_value import BitcodeVariable
from mlir_offload.toolchain.bitcode.module import BitcodeModule

_IMAGE_SECTION = ".llvm.offloading"
# On Windows, a suffix sorts the pieces of a section.
_ENTRY_SECTIONS = ("_offloading_entries", "llvm_offload_entries")
_MAX_FIELDS = 16


class EmbeddedObject(Struct, frozen=True):
    """The content of a variable in the section for images: concatenated offload binaries."""

    symbol: str
    section: str
    data: bytes


class EntryMember(Struct, frozen=True):
    """A field of an entry: a number, or the symbol that it points to.

    `string` is the content of that symbol if it is a string, such as the name of the entry.
    """

    number: int | None = None
    symbol: str | None = None
    string: str | None = None


class BitcodeEntry(Struct, frozen=True):
    """An offload entry, from the initializer of its variable; its layout determines the meaning of the fields."""

    symbol: str
    section: str
    members: tuple[EntryMember, ...]


def embedded_objects(module: BitcodeModule, constants: ConstantTable) -> Iterator[EmbeddedObject]:
    """Yield the images that are embedded in a host module, each decoded when it is reached.

    Several variables with the same content yield one object.
    """
    seen = set()
    for variable in module.variables:
        if variable.section != _IMAGE_SECTION or variable.initializer in seen:
            continue
        seen.add(variable.initializer)
        data = None if variable.initializer is None else constants.content(variable.initializer)
        if data is not None:
            yield EmbeddedObject(variable.name, variable.section, data)


def offload_entries(module: BitcodeModule, constants: ConstantTable) -> tuple[BitcodeEntry, ...]:
    """Return the offload entries of a host module.

    Raises VerificationError if one has more fields than any layout.
    """
    reader = _EntryReader(module, constants, {})
    return tuple(
        BitcodeEntry(variable.name, variable.section, reader.members(variable.initializer))
        for variable in module.variables
        if variable.section.partition("$O")[0].endswith(_ENTRY_SECTIONS)
        and variable.initializer is not None
    )


class _EntryReader(Struct, frozen=True):
    module: BitcodeModule
    constants: ConstantTable
    strings: dict[int, str | None]

    def members(self, initializer: int) -> tuple[EntryMember, ...]:
        record = self.constants.record(initializer)
        if record is not None and record.count > _MAX_FIELDS:
            reason = f"an offload entry of {record.count} members"
            raise record.malformed(reason)
        return tuple(self._member(value) for value in self.constants.elements(initializer) or ())

    def _member(self, value: int) -> EntryMember:
        number = self.constants.integer(value)
        if number is None and self.constants.is_null(value):
            number = 0
        if number is not None:
            return EntryMember(number=number)
        symbol = self.constants.symbol(value)
        if symbol is None:
            return EntryMember()
        string = None
        if isinstance(symbol, BitcodeVariable) and symbol.initializer is not None:
            string = self._string(symbol.initializer)
        return EntryMember(symbol=symbol.name, string=string)

    def _string(self, value: int) -> str | None:
        """Return the string in a constant, decoded once for all entries that point to it."""
        if value not in self.strings:
            self.strings[value] = self.constants.string(value)
        return self.strings[value]
