"""The functions that a device image defines for other images of its target, and those that it calls."""

from __future__ import annotations

from msgspec import Struct

from mlir_offload.offload.elf import ELF_MAGIC, read_elf
from mlir_offload.offload.image import is_bitcode
from mlir_offload.toolchain.bitcode.global_value import BitcodeFunction
from mlir_offload.toolchain.bitcode.module import read_bitcode
from mlir_offload.toolchain.byte_view import ByteView

_LOCAL = frozenset({"internal", "private"})


class DeviceSymbols(Struct, frozen=True):
    """The defined and undefined symbols of an image in the device link."""

    defined: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()


def read_device_symbols(view: ByteView) -> DeviceSymbols:
    """Return the functions of bitcode or an object; none for another format.

    Raises VerificationError if the image is corrupt.
    """
    head = view.head(len(ELF_MAGIC))
    if is_bitcode(head):
        return _of_bitcode(view)
    return _of_elf(view) if head == ELF_MAGIC else DeviceSymbols()


def _of_bitcode(view: ByteView) -> DeviceSymbols:
    functions = [
        symbol
        for symbol in read_bitcode(view).symbols
        if isinstance(symbol, BitcodeFunction) and symbol.linkage not in _LOCAL
    ]
    defined = frozenset(symbol.name for symbol in functions if not symbol.is_declaration)
    return DeviceSymbols(defined, frozenset(symbol.name for symbol in functions) - defined)


def _of_elf(view: ByteView) -> DeviceSymbols:
    symbols = [symbol for symbol in read_elf(view).symbols(".symtab") if symbol.is_global]
    undefined = frozenset(symbol.name for symbol in symbols if symbol.is_undefined)
    return DeviceSymbols(frozenset(symbol.name for symbol in symbols) - undefined, undefined)
