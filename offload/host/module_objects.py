"""Read the link inputs in a host module in LLVM IR, bitcode or text: images, entries, runtime functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.container.binary import PackagedImage
from mlir_offload.offload.container.offload_section import read_section
from mlir_offload.offload.host.bitcode import embedded_objects
from mlir_offload.offload.host.module_bitcode import HostBitcode
from mlir_offload.offload.host.object_entry import HostEntry
from mlir_offload.offload.ir_syntax import unescape_bytes
from mlir_offload.toolchain.bitcode.constant import ConstantTable
from mlir_offload.toolchain.bitcode.module import read_bitcode_modules
from mlir_offload.toolchain.byte_view import ByteView, memory_view
from mlir_offload.toolchain.pattern import ir_line_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

# Names in the string table of a module; without any of them it contains no offload data.
_MARKS = (b"llvm.embedded.object", b"offloading.entry", b"mgpu", b"mlir_offload_", b"memrefCopy")
_EMBEDDED = ir_line_bytes(
    '`global` = `words`constant [`number` x i8] c"`content:string`", section ".llvm.offloading"'
)
_DECLARED = ir_line_bytes("declare `head`@`name:bare`(")
_DEFINED_WEAK = ir_line_bytes("define weak hidden `head`@`name:bare`(")


class ModuleObject(Struct, frozen=True):
    """The offload data of the object that clang would compile from a module; `functions` may be external."""

    images: tuple[PackagedImage, ...]
    entries: tuple[HostEntry, ...]
    functions: frozenset[str]


def read_bitcode_object(view: ByteView) -> ModuleObject | None:
    """Return the offload data of a bitcode file; None if it has none.

    Raises VerificationError if it is malformed.
    """
    data = view.whole()
    if not any(mark in data for mark in _MARKS):
        return None
    images: list[PackagedImage] = []
    functions: set[str] = set()
    entries: list[HostEntry] = []
    for module in read_bitcode_modules(view):
        for embedded in embedded_objects(module, ConstantTable(module)):
            images += read_section(memory_view(embedded.data, location=view.location))
        entries += HostBitcode(module, view.location).entries()
        functions.update(
            function.name
            for function in module.functions
            if function.is_declaration
            or (function.linkage, function.visibility) == ("weak", "hidden")
        )
    return ModuleObject(tuple(images), tuple(entries), frozenset(functions))


def read_text_object(text: bytes, location: str) -> ModuleObject:
    """Return the images of a module in text, and its external functions. Its entries are not read."""
    return ModuleObject(
        tuple(_text_images(text, location)),
        (),
        frozenset(
            name.decode() for found in (_DECLARED, _DEFINED_WEAK) for name in found.findall(text)
        ),
    )


def _text_images(text: bytes, location: str) -> Iterator[PackagedImage]:
    for match in _EMBEDDED.finditer(text):
        yield from read_section(memory_view(unescape_bytes(match[1]), location=location))
