"""A private CUDA directory for the linker wrapper, with all tools and an adapter for `fatbinary`.

The wrapper of LLVM 21 and older runs `fatbinary --image=profile=sm_90,file=F`, which CUDA 12.9 and newer
reject; they require `--image3=kind=elf,sm=90,file=F`.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.abi import fatbinary_without_image, load_abi
from mlir_offload.toolchain.errors import InputOutputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mlir_offload.toolchain.tool import ToolVersion

_OLD_OPTION = "image"
_SCRIPT = """\
#!/bin/sh
# Rewrites --image=profile=sm_N,file=F for a fatbinary that knows only --image3=kind=K,sm=N,file=F.
for argument do
  shift
  case $argument in
{cubins}    --image=profile=sm_*,file=* | --image=profile=compute_*,file=*)
      profile=${{argument#--image=profile=}}
      file=${{profile#*,file=}}
      profile=${{profile%%,file=*}}
      case $profile in
        sm_*) argument=--image3=kind=elf,sm=${{profile#sm_}},file=$file ;;
        *) argument=--image3=kind=ptx,sm=${{profile#compute_}},file=$file ;;
      esac ;;
  esac
  set -- "$@" "$argument"
done
exec {program} "$@"
"""
_PTXAS_SCRIPT = """\
#!/bin/sh
# Where PTX names a file without its time and size, ptxas looks for the file and writes down what it
# finds. The PTX is a temporary file of the clang that calls this.
for argument do
  case $argument in
    *.s)
      sed -i 's/^[[:blank:]]*\\.file[[:blank:]][[:blank:]]*[0-9][0-9]*[[:blank:]][[:blank:]]*"[^"]*"[[:blank:]]*$/&, {seconds}, 1/' \\
        "$argument" || exit 1
      ;;
  esac
done
exec {program} "$@"
"""


class CudaTools(Struct, frozen=True):
    """The files of a CUDA installation that a device link needs, in any directories.

    `source_time` is the time stamp that ptxas uses for every source file, None for the real ones.
    `ptxas_arguments` are added to each ptxas command. `ptx` for an architecture is added to every fat binary.
    `cubins` are linked cubins, whose architecture the wrapper may report differently.
    """

    version: ToolVersion
    ptxas: Path
    nvlink: Path
    fatbinary: Path
    libdevice: Path | None = None
    source_time: int | None = None
    ptxas_arguments: tuple[str, ...] = ()
    ptx: tuple[tuple[str, Path], ...] = ()
    cubins: tuple[tuple[str, Path], ...] = ()


def cubin_argument(cuda: ToolVersion, arch: str, file: Path) -> str:
    """Return the argument that passes a linked cubin to `fatbinary` of a CUDA release."""
    if (cuda.major, cuda.minor) >= fatbinary_without_image():
        return f"--image3=kind=elf,sm={arch.removeprefix('sm_')},file={file}"
    return f"--image=profile={arch},file={file}"


def ptx_argument(cuda: ToolVersion, arch: str, file: Path) -> str:
    """Return the argument that passes PTX to `fatbinary` of a CUDA release."""
    number = arch.removeprefix("sm_")
    if (cuda.major, cuda.minor) >= fatbinary_without_image():
        return f"--image3=kind=ptx,sm={number},file={file}"
    return f"--image=profile=compute_{number},file={file}"


def needs_adapter(llvm_major: int, cuda: ToolVersion) -> bool:
    """Return whether the wrapper of an LLVM release cannot run the `fatbinary` of a CUDA release."""
    old = load_abi(llvm_major).fatbinary_option == _OLD_OPTION
    return old and (cuda.major, cuda.minor) >= fatbinary_without_image()


def write_cuda_directory(directory: Path, tools: CudaTools, llvm_major: int) -> Path:
    """Fill a directory that clang and its linker wrapper accept as `--cuda-path`, and return it.

    Tools are symbolic links; those without execute permission (as in wheels) are copied. Raises
    InputOutputError if a file cannot be written.
    """
    try:
        _place_ptxas(directory / "bin", tools)
        _place_tool(tools.nvlink, directory / "bin" / "nvlink")
        _place_fatbinary(directory / "bin", tools, llvm_major)
        _write_version(directory / "include", tools.version)
        _place_libdevice(directory / "nvvm" / "libdevice", tools.libdevice)
    except OSError as error:
        msg = f"cannot write {error.filename or directory}: {error.strerror}"
        raise InputOutputError(msg, location=str(directory)) from error
    return directory


def fatbinary_script(
    program: Path, ptx: Sequence[tuple[str, Path]] = (), cubins: Sequence[tuple[str, Path]] = ()
) -> str:
    """Return the text of the adapter, an `sh` script that executes the real program at its end."""
    images = (f"--image3=kind=ptx,sm={arch.removeprefix('sm_')},file={path}" for arch, path in ptx)
    words = " ".join(shlex.quote(word) for word in (str(program), *images))
    return _SCRIPT.format(program=words, cubins="".join(map(_cubin_case, cubins)))


def _cubin_case(cubin: tuple[str, Path]) -> str:
    """Return the case that passes a linked cubin with the architecture for which it was compiled."""
    arch, path = cubin
    file = shlex.quote(str(path))
    argument = f"--image3=kind=elf,sm={arch.removeprefix('sm_')},file={file}"
    return f"    --image*,file={file}) argument={argument} ;;\n"


def _place_fatbinary(folder: Path, tools: CudaTools, llvm_major: int) -> None:
    is_adapted = needs_adapter(llvm_major, tools.version) or tools.ptx or tools.cubins
    if not is_adapted:
        _place_tool(tools.fatbinary, folder / "fatbinary")
        return
    program = tools.fatbinary
    if not os.access(program, os.X_OK):
        program = folder / "fatbinary.bin"
        _place_tool(tools.fatbinary, program)
    script = fatbinary_script(program, tools.ptx, tools.cubins)
    _write_executable(folder / "fatbinary", script)


def _place_ptxas(folder: Path, tools: CudaTools) -> None:
    program = folder / "ptxas"
    _place_tool(tools.ptxas, program)
    if tools.source_time is not None or tools.ptxas_arguments:
        program = program.rename(folder / "ptxas.bin")
        words = (str(program.absolute()), *tools.ptxas_arguments)
        _write_executable(folder / "ptxas", ptxas_script(words, tools.source_time or 1))


def _place_tool(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if os.access(source, os.X_OK):
        target.symlink_to(source.absolute())
        return
    target.write_bytes(source.read_bytes())
    target.chmod(0o755)


def _write_executable(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _write_version(folder: Path, version: ToolVersion) -> None:
    """Write the header from which clang reads the CUDA release (clang/lib/Driver/ToolChains/Cuda.cpp)."""
    folder.mkdir(parents=True, exist_ok=True)
    number = version.major * 1000 + version.minor * 10
    (folder / "cuda.h").write_text(f"#define CUDA_VERSION {number}\n", encoding="utf-8")


def _place_libdevice(folder: Path, libdevice: Path | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if libdevice is not None:
        target = folder / libdevice.name
        target.unlink(missing_ok=True)
        target.symlink_to(libdevice.absolute())


def ptxas_script(program: Sequence[str], seconds: int) -> str:
    """Return the text of the adapter, an `sh` script that executes the real program at its end.

    `program` is the real program, followed by additional arguments.
    """
    return _PTXAS_SCRIPT.format(program=shlex.join(program), seconds=max(seconds, 1))
