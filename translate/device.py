"""Device modules for CUDA: from the IR that mlir-translate writes to relocatable device code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.tables import load_table
from mlir_offload.translate.device_ir import internalized, with_dynamic_shared, with_target

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.llvm import LlvmToolchain

_LIBDEVICE_CALL = re.compile(r"@__nv_\w")
_EMISSION_KIND = re.compile(
    r"^(!\d+ = distinct !DICompileUnit\(.*\bemissionKind: )\w+", re.MULTILINE
)
_PTX_FILE = re.compile(r'^[ \t]*\.file[ \t]+\d+[ \t]+"(?:[^"\\\n]|\\.)*"(?=[ \t]*$)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DeviceCodegen:
    """How the code of one target is generated: architecture, PTX ISA (83 is 8.3), level, debug."""

    arch: str
    ptx_isa: int
    opt_level: int
    debug: bool = False


def nvptx_device_ir(ll_text: str, *, kernels: Collection[str], llvm_major: int) -> str:
    """Return a device module that the NVPTX back end of an LLVM release compiles as intended.

    It gets triple and data layout; kernels are marked by their calling convention, which every
    release reads; all else becomes internal, so that equal names in two modules never meet; and
    dynamic shared memory becomes `.extern .shared`, sized by the launch. Debug information is cut
    down to lines, as with nvcc's -lineinfo.
    """
    triple, layout = _target(llvm_major)
    text = with_dynamic_shared(with_target(ll_text, triple, layout))
    # Any other kind makes `.target debug`, which ptxas refuses to optimise; lines are all there is.
    text = _EMISSION_KIND.sub(r"\g<1>DebugDirectivesOnly", text)
    return internalized(text, kernels, convention="ptx_kernel")


def with_file_times(ptx: str, seconds: int) -> str:
    """Return PTX whose `.file` directives give time and size.

    Where they do not, ptxas -lineinfo looks for the files, and what it finds goes into the code. A
    size or time of 0 counts as not given (CUDA 13.0).
    """
    return _PTX_FILE.sub(rf"\g<0>, {max(seconds, 1)}, 1", ptx)


def needs_libdevice(ll_text: str) -> bool:
    """Return whether the module calls NVIDIA's libdevice."""
    return _LIBDEVICE_CALL.search(ll_text) is not None


def nvptx_assembly_command(
    llvm: LlvmToolchain, source: Path, output: Path, codegen: DeviceCodegen, libdevice: Path | None
) -> Command:
    """Return the command that compiles a device module to PTX.

    `libdevice` is linked in as far as it is called, and made internal; pass None if it is not.
    """
    return _clang_command(llvm, (*_target_flags(codegen), "-S"), source, output, libdevice)


def nvptx_bitcode_command(
    llvm: LlvmToolchain, source: Path, output: Path, codegen: DeviceCodegen, libdevice: Path | None
) -> Command:
    """Return the command that optimises a device module to bitcode, for code generation at link."""
    flags = (*_target_flags(codegen), "-c", "-emit-llvm")
    return _clang_command(llvm, flags, source, output, libdevice)


def cubin_command(
    cuda: CudaToolkit,
    source: Path,
    output: Path,
    codegen: DeviceCodegen,
    arguments: tuple[str, ...],
) -> Command:
    """Return the command that assembles PTX to a relocatable cubin, with the user's `-Xptxas`.

    Raises ToolchainError where the toolkit has no ptxas.
    """
    if cuda.ptxas is None:
        msg = f"the CUDA toolkit in {cuda.root} has no ptxas"
        raise ToolchainError(msg, hint="install the nvcc component of the CUDA toolkit")
    debug = ("-lineinfo",) if codegen.debug else ()
    flags = (f"-arch={codegen.arch}", "-c", f"-O{codegen.opt_level}", *debug, *arguments)
    return Command((str(cuda.ptxas), *flags, str(source), "-o", str(output)))


@cache
def _target(llvm_major: int) -> tuple[str, str]:
    table = load_table("mlir_offload.translate", "nvptx_layout")
    rows = [row["layout"] for row in table["layouts"] if row["since"] <= llvm_major]
    return table["triple"], rows[-1]


def _target_flags(codegen: DeviceCodegen) -> tuple[str, ...]:
    # -nogpulib: the driver would link libdevice into all, and fail where it finds no CUDA.
    # --cuda-feature: else the driver asks for the PTX ISA of the CUDA that it finds by itself.
    feature = f"--cuda-feature=+ptx{codegen.ptx_isa}"
    return (f"-march={codegen.arch}", f"-O{codegen.opt_level}", "-nogpulib", feature)


def _clang_command(
    llvm: LlvmToolchain,
    flags: tuple[str, ...],
    source: Path,
    output: Path,
    libdevice: Path | None,
) -> Command:
    library = ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(libdevice)) if libdevice else ()
    triple = _target(llvm.version.major)[0]
    head = (str(llvm.tool("clang")), f"--target={triple}", "-x", "ir")
    quiet = ("-Wno-unknown-cuda-version", "-Wno-override-module")
    return Command((*head, *flags, *quiet, *library, str(source), "-o", str(output)))
