"""Read ELF images for CPUs, x86-64 and AArch64, of kind `openmp`.

Such an image does not mark its kernels: any global function may be one. The offload entries of the host
identify them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mlir_offload.offload.device import code_hash
from mlir_offload.offload.device.kernel import DeviceCode, DeviceKernel
from mlir_offload.offload.elf import ElfFile, ElfSymbol, Machine, read_elf
from mlir_offload.offload.elf_note import read_compiler
from mlir_offload.toolchain.byte_view import ByteView

_FORM = "ELF"
_ARCHS = {Machine.X86_64: "x86_64", Machine.AARCH64: "aarch64"}


def read_host_image(view: ByteView) -> DeviceCode:
    """Read a CPU image and its global functions.

    Raises VerificationError if it is not such an image, or is corrupt.
    """
    elf = _open(view)
    symbols = list(elf.symbols(_table(elf)))
    producer, major = read_compiler(elf)

    return DeviceCode(
        form=_FORM,
        producer=producer,
        llvm_major=major,
        arch=_ARCHS[elf.machine],
        is_relocatable=elf.is_relocatable,
        kernels=tuple(
            DeviceKernel(symbol.name, code_bytes=symbol.size) for symbol in _functions(symbols)
        ),
        undefined=tuple(
            dict.fromkeys(
                symbol.name
                for symbol in symbols
                if symbol.is_undefined and symbol.is_global and symbol.name
            )
        ),
    )


def host_image_kernel_names(view: ByteView) -> tuple[str, ...]:
    """Return the global functions of an image. Raises VerificationError if it is corrupt."""
    elf = _open(view)
    return tuple(symbol.name for symbol in _functions(elf.symbols(_table(elf))))


def hash_host_image_kernels(view: ByteView, names: Collection[str]) -> dict[str, str]:
    """Return the SHA-256 of the code of those functions that the image defines."""
    elf = _open(view)
    wanted = (symbol for symbol in _functions(elf.symbols(_table(elf))) if symbol.name in names)
    return code_hash.hash_code(
        elf, {symbol.name: [code_hash.CodePiece.of(elf, symbol)] for symbol in wanted}
    )


def _open(view: ByteView) -> ElfFile:
    elf = read_elf(view)
    if elf.machine not in _ARCHS:
        raise elf.view.malformed(
            18, "machine", f"found {elf.machine}, which is not a host processor"
        )
    return elf


def _table(elf: ElfFile) -> str:
    return ".symtab" if elf.is_relocatable else ".dynsym"


# The driver's prefix for device functions that other files call; they are not kernels.
_DEVICE_FUNCTION = "mo.device."


def _functions(symbols: Collection[ElfSymbol] | Iterator[ElfSymbol]) -> Iterator[ElfSymbol]:
    return (
        symbol
        for symbol in symbols
        if symbol.is_function
        and symbol.is_global
        and not symbol.is_undefined
        and not symbol.name.startswith(_DEVICE_FUNCTION)
    )
