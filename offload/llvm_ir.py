"""Convert textual LLVM IR to bitcode for an LLVM release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.process import Command

if TYPE_CHECKING:
    from pathlib import Path

    from llvmlite import binding

    from mlir_offload.toolchain.llvm import LlvmToolchain


def in_process_llvm_major() -> int | None:
    """Return the LLVM release in llvmlite; None if llvmlite cannot be loaded."""
    try:
        from llvmlite import binding
    except (ImportError, OSError):
        return None
    return int(binding.llvm_version_info[0])


def is_written_in_process(consumer_major: int) -> bool:
    """Return whether this process can write bitcode for the linking LLVM: llvmlite has the same release."""
    return in_process_llvm_major() == consumer_major


def write_bitcode_in_process(ll_text: str, *, location: str = "") -> bytes:
    """Return the module as bitcode of llvmlite's LLVM release, parsed and verified.

    Only for a consumer of the same release, because an older one may silently misread it. Raises
    VerificationError if the text is not a valid module.
    """
    module = _parse(ll_text, location)
    bitcode = module.as_bitcode()
    module.close()
    return bytes(bitcode)


def _parse(ll_text: str, location: str) -> binding.ModuleRef:
    from llvmlite import binding

    try:
        module = binding.parse_assembly(ll_text)
        module.verify()
    except RuntimeError as error:
        msg = f"the generated LLVM IR is not valid: {str(error).strip()}"
        raise VerificationError(
            msg, hint="this is a bug; please report it", location=location
        ) from error
    return module


def compile_module_command(clang: Path, source: Path, output: Path) -> Command:
    """Return the command that compiles a host module in LLVM IR to a position-independent object."""
    flags = ("-x", "ir", "-O2", "-fPIC", "-Wno-override-module", "-c")
    return Command((str(clang), *flags, str(source), "-o", str(output)))


def assemble_command(llvm: LlvmToolchain, source: Path, output: Path) -> Command:
    """Return the command by which the linking clang writes the bitcode of a textual module.

    The result equals that of llvm-as of the release, which is not always installed.
    """
    passes = ("-O0", "-Xclang", "-disable-llvm-passes", "-Wno-override-module")
    head = (str(llvm.tool("clang")), "-x", "ir", "-c", "-emit-llvm", *passes)
    return Command((*head, str(source), "-o", str(output)))
