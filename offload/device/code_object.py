"""Read AMD code objects, relocatable or linked (hsaco), of code object versions 2 to 6.

The format is "ELF Code Object" in LLVM's AMDGPUUsage. Of version 2, which LLVM 17 and newer do not write,
only the names and sizes of the kernels are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.offload.device import code_hash
from mlir_offload.offload.device.amdgpu_metadata import AmdgpuMetadata, parse_metadata
from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel
from mlir_offload.offload.elf import ElfFile, ElfSymbol, Machine, read_elf
from mlir_offload.offload.elf_note import iterate_notes, read_code_generator
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.tables import load_table

_FORM = "AMDGPU code object"
_TRIPLES = {64: "amdgcn-amd-amdhsa", 65: "amdgcn-amd-amdpal", 66: "amdgcn-mesa-mesa3d"}
_METADATA_OWNER = "AMDGPU"
_METADATA_NOTE = 32  # NT_AMDGPU_METADATA
_DESCRIPTOR_SUFFIX = ".kd"
_DESCRIPTOR_BYTES = 64
_OBJECT = 1  # STT_OBJECT
_KERNEL_V2 = 10  # STT_AMDGPU_HSA_KERNEL
# EI_ABIVERSION is the code object version minus 2.
_ABI_V2, _ABI_V3 = 0, 1
_MACH = 0xFF
# Features from version 4 on: two bits each, for unsupported, any, off, on.
_FEATURES = (("sramecc", 10), ("xnack", 8))
_SETTINGS = {2: "-", 3: "+"}
_FEATURES_V3 = (("sramecc", 0x200), ("xnack", 0x100))


class _CodeObject(Struct):
    """A code object with its symbols by name: functions, kernel descriptors, undefined symbols."""

    elf: ElfFile
    functions: dict[str, ElfSymbol]
    descriptors: dict[str, ElfSymbol]
    undefined: tuple[str, ...]

    @property
    def is_v2(self) -> bool:
        """Return whether this is code object version 2, whose kernels have no separate descriptors."""
        return self.elf.abi_version == _ABI_V2


def read_code_object(view: ByteView) -> DeviceCode:
    """Read an AMD code object and its kernels.

    Raises VerificationError if it is not a code object, if it is corrupt, or if its metadata names a kernel
    that it does not define.
    """
    code = _open(view)
    metadata = _read_metadata(code.elf)
    producer, major = read_code_generator(code.elf)
    return DeviceCode(
        form=_FORM,
        producer=producer,
        llvm_major=major,
        triple=_TRIPLES.get(code.elf.os_abi, ""),
        arch=_arch(code.elf, metadata),
        is_relocatable=code.elf.is_relocatable,
        kernels=_kernels(code, metadata),
        undefined=code.undefined,
    )


def code_object_kernel_names(view: ByteView) -> tuple[str, ...]:
    """Return the kernels that a code object defines. Raises VerificationError if it is corrupt."""
    return tuple(_kernel_names(_open(view)))


def hash_code_object_kernels(view: ByteView, names: Collection[str]) -> dict[str, str]:
    """Return the SHA-256 of the code of those kernels that the code object defines."""
    code = _open(view)
    pieces = {
        name: [code_hash.CodePiece.of(code.elf, code.functions[name])]
        for name in _kernel_names(code)
        if name in names and name in code.functions
    }
    return code_hash.hash_code(code.elf, pieces)


def _open(view: ByteView) -> _CodeObject:
    elf = read_elf(view.part(0, view.size, "content", form=_FORM))
    if elf.machine != Machine.AMDGPU:
        raise elf.view.malformed(18, "machine", f"found {elf.machine}, expected 224 (EM_AMDGPU)")
    functions: dict[str, ElfSymbol] = {}
    descriptors: dict[str, ElfSymbol] = {}
    undefined: dict[str, None] = {}
    for symbol in elf.symbols(".symtab" if elf.named(".symtab") else ".dynsym"):
        if symbol.is_undefined:
            if symbol.is_global and symbol.name:
                undefined[symbol.name] = None
        elif symbol.is_function or symbol.info & 0xF == _KERNEL_V2:
            functions.setdefault(symbol.name, symbol)
        elif symbol.info & 0xF == _OBJECT and symbol.name.endswith(_DESCRIPTOR_SUFFIX):
            descriptors.setdefault(symbol.name, symbol)
    return _CodeObject(elf, functions, descriptors, tuple(undefined))


def _kernel_names(code: _CodeObject) -> list[str]:
    if code.is_v2:
        return [name for name, symbol in code.functions.items() if symbol.info & 0xF == _KERNEL_V2]
    return [name.removesuffix(_DESCRIPTOR_SUFFIX) for name in code.descriptors]


def _read_metadata(elf: ElfFile) -> AmdgpuMetadata:
    """Return the metadata of all notes: lld keeps that of each object that it links."""
    found = [
        parse_metadata(note.content)
        for note in iterate_notes(elf)
        if note.owner == _METADATA_OWNER and note.type == _METADATA_NOTE
    ]
    target = next((metadata.target for metadata in found), "")
    return AmdgpuMetadata(target, tuple(chain.from_iterable(item.kernels for item in found)))


def _kernels(code: _CodeObject, metadata: AmdgpuMetadata) -> tuple[DeviceKernel, ...]:
    """Return the kernels of `_kernel_names`, each with its metadata if it has any."""
    described: dict[str, DeviceKernel] = {}
    for descriptor, kernel in () if code.is_v2 else metadata.kernels:
        symbol = code.descriptors.get(descriptor)
        if symbol is None or symbol.size != _DESCRIPTOR_BYTES:
            raise code.elf.view.malformed(0, f"kernel descriptor {descriptor}", "it is not defined")
        described[descriptor.removesuffix(_DESCRIPTOR_SUFFIX)] = kernel
    names = dict.fromkeys((*described, *_kernel_names(code)))
    return tuple(
        replace(
            described.get(name, DeviceKernel(name)), name=name, code_bytes=_code_bytes(code, name)
        )
        for name in names
    )


def _code_bytes(code: _CodeObject, name: str) -> int | None:
    symbol = code.functions.get(name)
    return symbol.size if symbol else None


def _arch(elf: ElfFile, metadata: AmdgpuMetadata) -> str:
    """Return the processor and the features that the code requires, as `gfx90a:xnack-`."""
    name = load_processors().get(elf.flags & _MACH)
    if name is None:
        # If the table does not contain the processor, take its name from the metadata.
        known = metadata.target.partition("--")[2]
        return known or f"mach-{elf.flags & _MACH:#x}"
    if elf.abi_version <= _ABI_V3:
        found = (f":{key}+" for key, bit in _FEATURES_V3 if elf.flags & bit)
        return name + ("" if elf.abi_version == _ABI_V2 else "".join(found))
    settings = ((key, _SETTINGS.get(elf.flags >> shift & 3)) for key, shift in _FEATURES)
    return name + "".join(f":{key}{sign}" for key, sign in settings if sign)


@cache
def load_processors() -> Mapping[int, str]:
    """Return the processors of all releases by their EF_AMDGPU_MACH value."""
    return parse_processors(load_table("mlir_offload.offload", "amdgpu_mach"))


def parse_processors(table: Mapping[str, Any]) -> Mapping[int, str]:
    """Read the table. Raises ValueError if a value is invalid, or belongs to two processors."""
    found: dict[int, str] = {}
    for row in table["processors"]:
        for name, code in row["codes"].items():
            if type(code) is not int or not 0 < code <= _MACH or code in found:
                msg = f"amdgpu_mach: {name} has the number {code}"
                raise ValueError(msg)
            found[code] = name
    return found
