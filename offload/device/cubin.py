"""Read cubins, NVIDIA's device code in ELF: relocatable or linked, of CUDA 11 to 13.

NVIDIA does not document the format. The section, attribute and flag names are those of cuobjdump and
`llvm/BinaryFormat/ELF.h`, checked against the output of ptxas for the same code.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from enum import IntEnum
from functools import cached_property

from msgspec import Struct, field

from mlir_offload.offload import elf_note
from mlir_offload.offload.device import code_hash
from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel, KernelParameter
from mlir_offload.offload.elf import (
    ElfFile,
    ElfSection,
    ElfSymbol,
    Machine,
    SectionType,
    read_elf,
)
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.pattern import pattern

_FORM = "cubin"
_TRIPLE = "nvptx64-nvidia-cuda"
_ENTRY = 0x10  # STO_CUDA_ENTRY
_ADDRESS_SPACE = 0xE0  # STO_CUDA_GLOBAL, _SHARED, _LOCAL, _CONSTANT
_SHARED_SPACE = 0x40  # STO_CUDA_SHARED: `extern .shared`, whose size is passed at launch
# EI_ABIVERSION 8 (CUDA 12.8 for sm_100, CUDA 13 for all) moved the fields of e_flags.
_SECOND_ABI = 8
_ACCELERATED = {False: 0x800, True: 0x8}  # EF_CUDA_ACCELERATORS_V1, EF_CUDA_ACCELERATORS
_COMPAT_ACCELERATED = 0x9  # the equivalent record of .nv.compat, from CUDA 13 on
# From sm_90 on, the shared memory in a linked cubin includes the bytes that the CUDA driver reserves.
_RESERVED_SHARED = 1024
_FIRST_RESERVING = 90
_NOT_PASSED = 0xFFFF  # the offset of a texture, sampler or surface, which is bound, not passed
_MOST_REGISTERS = 255  # the limit of every kernel
_TOOL_OWNER = "NVIDIA Corp"
_TOOL_NOTE = 2000
_TOOL = struct.Struct("<6I")
_ARCH_OPTION = pattern(r"-arch[ =]sm_(\d+)([af]?)(?!\w)")
_ATTRIBUTE_FORMS = range(1, 5)
_SIZED_FORM = 4  # EIFMT_SVAL; the others store their value, of up to 16 bits, in the record header


class Attribute(IntEnum):
    """The records of `.nv.info` and `.nv.info.<kernel>` that are read (`EIATTR_*`)."""

    MAX_THREADS = 0x05
    REQNTID = 0x10
    FRAME_SIZE = 0x11
    MIN_STACK_SIZE = 0x12
    KPARAM_INFO = 0x17
    CBANK_PARAM_SIZE = 0x19
    MAXREG_COUNT = 0x1B
    REGCOUNT = 0x2F
    KPARAM_INFO_V2 = 0x45


_READ_ATTRIBUTES = frozenset((*Attribute, _COMPAT_ACCELERATED))
_KERNEL_ATTRIBUTES = (Attribute.REGCOUNT, Attribute.FRAME_SIZE, Attribute.MIN_STACK_SIZE)
_DIMENSIONS = struct.Struct("<3I")
_SYMBOL_VALUE = struct.Struct("<2I")
_PARAMETER = struct.Struct("<IHHI")


class _Cubin(Struct, dict=True):
    """A cubin with its sections by name and its kernels by the index of their symbol."""

    elf: ElfFile
    kernels: dict[int, ElfSymbol]
    undefined: tuple[str, ...]

    @cached_property
    def sections(self) -> dict[str, ElfSection]:
        """Return the sections by name, of several the first; there are some for each kernel."""
        return {section.name: section for section in reversed(self.elf.sections)}

    @property
    def sm(self) -> int:
        """Return the number of the architecture."""
        flags = self.elf.flags
        return flags >> 8 & 0xFF if self.elf.abi_version >= _SECOND_ABI else flags & 0xFF


class _KernelRecords(Struct):
    """The records of `.nv.info.<kernel>`."""

    parameters: dict[int, KernelParameter] = field(default_factory=dict)
    parameter_bytes: int = 0
    max_registers: int | None = None
    threads: dict[int, tuple[int, int, int]] = field(default_factory=dict)


def read_cubin(view: ByteView) -> DeviceCode:
    """Read a cubin and its kernels.

    Raises VerificationError if it is not a cubin, or is corrupt.
    """
    cubin = _open(view)
    tool, options = _read_tool(cubin.elf)
    return DeviceCode(
        form=_FORM,
        producer=tool,
        triple=_TRIPLE,
        arch=f"sm_{cubin.sm}{_arch_suffix(cubin, options)}",
        is_relocatable=cubin.elf.is_relocatable,
        kernels=tuple(_read_kernels(cubin)),
        undefined=cubin.undefined,
    )


def cubin_kernel_names(view: ByteView) -> tuple[str, ...]:
    """Return the kernels that a cubin defines. Raises VerificationError if it is corrupt."""
    return tuple(symbol.name for symbol in _open(view).kernels.values())


def hash_cubin_kernels(view: ByteView, names: Collection[str]) -> dict[str, str]:
    """Return the SHA-256 of the code of those kernels that the cubin defines.

    Hashes are equal only if instructions, literals and relocations are, whatever else is in the file. Raises
    VerificationError if the cubin is corrupt.
    """
    cubin = _open(view)
    wanted = (kernel.name for kernel in cubin.kernels.values() if kernel.name in names)
    return code_hash.hash_code(cubin.elf, {name: list(_pieces(cubin, name)) for name in wanted})


def _open(view: ByteView) -> _Cubin:
    elf = read_elf(view.part(0, view.size, "content", form=_FORM))
    if elf.machine != Machine.CUDA:
        raise elf.view.malformed(18, "machine", f"found {elf.machine}, expected 190 (EM_CUDA)")
    kernels: dict[str, tuple[int, ElfSymbol]] = {}
    undefined: dict[str, None] = {}
    for index, symbol in enumerate(elf.symbols(".symtab")):
        if symbol.is_undefined:
            if _is_needed(symbol):
                undefined[symbol.name] = None
        elif symbol.is_function and symbol.other & _ENTRY:
            kernels.setdefault(symbol.name, (index, symbol))
    return _Cubin(elf, dict(kernels.values()), tuple(undefined))


def _is_needed(symbol: ElfSymbol) -> bool:
    """Return whether another image, or the CUDA driver, must define the symbol."""
    return (
        symbol.info >> 4 == 1  # STB_GLOBAL; weak undefined symbols are tables that nvlink creates
        and symbol.name != ""
        and not symbol.name.startswith(".nv.")
        and symbol.other & _ADDRESS_SPACE != _SHARED_SPACE
    )


def _read_kernels(cubin: _Cubin) -> Iterator[DeviceKernel]:
    _check_records_apart(cubin)
    values = _read_values(cubin)
    for index, symbol in cubin.kernels.items():
        name = symbol.name
        text = cubin.sections.get(f".text.{name}")
        records = _read_records(cubin, name)
        bounds = records.threads.get(Attribute.MAX_THREADS) if records else None
        registers = values.get((Attribute.REGCOUNT, index))
        frame = values.get((Attribute.FRAME_SIZE, index))
        yield DeviceKernel(
            name=name,
            parameters=_parameters(records) if records else None,
            max_threads=bounds[0] * bounds[1] * bounds[2] if bounds else None,
            required_threads=records.threads.get(Attribute.REQNTID) if records else None,
            registers=text.info >> 24 if registers is None and text else registers,
            max_registers=records.max_registers if records else None,
            shared_bytes=_shared_bytes(cubin, name),
            local_bytes=values.get((Attribute.MIN_STACK_SIZE, index), frame),
            code_bytes=text.size if text else symbol.size,
        )


def _check_records_apart(cubin: _Cubin) -> None:
    """Raise VerificationError if attribute sections overlap, because reading each would take too long."""
    total = sum(
        section.size for name, section in cubin.sections.items() if name.startswith(".nv.info")
    )
    if total > cubin.elf.view.size:
        raise cubin.elf.view.malformed(0, "sections .nv.info", "they overlap")


def _read_values(cubin: _Cubin) -> dict[tuple[int, int], int]:
    """Return the values in `.nv.info`: (attribute, index of the kernel's symbol) -> value."""
    section = cubin.sections.get(".nv.info")
    if section is None:
        return {}
    view = cubin.elf.content(section, form=_FORM)
    found = {}
    for offset, kind, payload in _iterate_records(view):
        if kind in _KERNEL_ATTRIBUTES:
            index, value = _unpack(view, _SYMBOL_VALUE, offset, payload)
            if index in cubin.kernels:
                found[kind, index] = value
    return found


def _read_records(cubin: _Cubin, kernel: str) -> _KernelRecords | None:
    section = cubin.sections.get(f".nv.info.{kernel}")
    if section is None:
        return None
    view = cubin.elf.content(section, form=_FORM)
    records = _KernelRecords()
    for offset, kind, payload in _iterate_records(view):
        if kind == Attribute.KPARAM_INFO:
            _, ordinal, place, packed = _unpack(view, _PARAMETER, offset, payload)
            records.parameters[ordinal] = KernelParameter(place, packed >> 18)
        elif kind == Attribute.KPARAM_INFO_V2:
            _, ordinal, place, size = _unpack(view, _PARAMETER, offset, payload)
            records.parameters[ordinal] = KernelParameter(place, size)
        elif kind == Attribute.CBANK_PARAM_SIZE:
            records.parameter_bytes = int.from_bytes(payload, "little")
        elif kind == Attribute.MAXREG_COUNT:
            bound = int.from_bytes(payload, "little")
            records.max_registers = bound if bound < _MOST_REGISTERS else None
        elif kind in (Attribute.MAX_THREADS, Attribute.REQNTID):
            x, y, z = _unpack(view, _DIMENSIONS, offset, payload)
            records.threads[kind] = (x, y, z)
    return records


def _parameters(records: _KernelRecords) -> tuple[KernelParameter, ...] | None:
    """Return the parameters in order; None if only their total size is stored."""
    if records.parameter_bytes and not records.parameters:
        return None
    return tuple(
        parameter
        for _, parameter in sorted(records.parameters.items())
        if parameter.offset != _NOT_PASSED
    )


def _shared_bytes(cubin: _Cubin, kernel: str) -> int:
    section = cubin.sections.get(f".nv.shared.{kernel}")
    size = section.size if section else 0
    is_padded = not cubin.elf.is_relocatable and cubin.sm >= _FIRST_RESERVING
    return max(0, size - _RESERVED_SHARED) if is_padded else size


def _iterate_records(view: ByteView) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, attribute and value of each known record in a section such as `.nv.info`."""
    data = view.whole()
    offset = 0
    last = len(data) - 4
    while offset <= last:
        form, kind, low, high = data[offset : offset + 4]
        start = offset + 4
        end = start + (low | high << 8) if form == _SIZED_FORM else start
        if form not in _ATTRIBUTE_FORMS:
            raise view.malformed(offset, "attribute format", f"there is no format {form}")
        if end > len(data):
            raise view.malformed(offset, f"attribute {kind:#x}", "it reaches beyond its section")
        if kind in _READ_ATTRIBUTES:
            yield offset, kind, data[start:end] if form == _SIZED_FORM else data[offset + 2 : start]
        offset = end


def _unpack(view: ByteView, layout: struct.Struct, offset: int, payload: bytes) -> tuple[int, ...]:
    if len(payload) < layout.size:
        reason = f"it has {len(payload)} bytes, not {layout.size}"
        raise view.malformed(offset, "attribute", reason)
    return layout.unpack_from(payload)


def _read_tool(elf: ElfFile) -> tuple[str, str]:
    """Return the program that wrote the file, with its release, and its options."""
    if elf.abi_version < _SECOND_ABI:
        # In this ABI, e_version is the CUDA release: 124 for 12.4.
        (release,) = elf.view.unpack(struct.Struct("<I"), 20, "version")
        return (f"CUDA {release // 10}.{release % 10}" if release > 1 else ""), ""
    for note in elf_note.iterate_notes(elf):
        if note.owner == _TOOL_OWNER and note.type == _TOOL_NOTE:
            *_, program, release, _, options = note.content.unpack(_TOOL, 0, "tool note")
            texts = (
                note.content.text(_TOOL.size + place, "tool note").strip()
                for place in (program, release, options)
            )
            program, release, options = texts
            return f"{program}, {release}", options
    return "", ""


def _arch_suffix(cubin: _Cubin, options: str) -> str:
    """Return `a` for architecture-specific code, `f` for family-specific code such as sm_100f.

    Only the options of the program that wrote the file distinguish the latter.
    """
    is_second = cubin.elf.abi_version >= _SECOND_ABI
    if cubin.elf.flags & _ACCELERATED[is_second] or _says_accelerated(cubin):
        return "a"
    asked = _ARCH_OPTION.search(options)
    return asked[2] if asked and int(asked[1]) == cubin.sm and asked[2] == "f" else ""


def _says_accelerated(cubin: _Cubin) -> bool:
    section = cubin.sections.get(".nv.compat")
    if section is None:
        return False
    view = cubin.elf.content(section, form=_FORM)
    return any(
        kind == _COMPAT_ACCELERATED and payload[:1] == b"\1"
        for _, kind, payload in _iterate_records(view)
    )


def _pieces(cubin: _Cubin, kernel: str) -> Iterator[code_hash.CodePiece]:
    """Yield the code of a kernel and its literals; constant bank 0 contains only space for the parameters."""
    literals = (f".nv.constant{bank}.{kernel}" for bank in range(1, 6))
    for name in (f".text.{kernel}", *literals):
        section = cubin.sections.get(name)
        if section is not None and section.type != SectionType.NOBITS:
            yield code_hash.CodePiece(section, 0, section.size)
