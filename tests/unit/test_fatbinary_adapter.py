from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mlir_offload.offload.link.fatbinary_adapter import (
    CudaTools,
    fatbinary_script,
    needs_adapter,
    write_cuda_directory,
)
from mlir_offload.toolchain.errors import InputOutputError
from mlir_offload.toolchain.process import Command, ProcessRunner
from mlir_offload.toolchain.tool import ToolVersion

if TYPE_CHECKING:
    from pathlib import Path

CUDA_13 = ToolVersion(13, 0, 88)


@pytest.mark.parametrize(
    ("major", "cuda", "needed"),
    [
        (16, (13, 0), True),
        (19, (12, 9), True),
        (19, (12, 8), False),
        (21, (13, 0), True),
        (22, (13, 0), False),
        (22, (12, 0), False),
    ],
)
def test_the_adapter_is_for_old_wrappers_with_new_toolkits(
    *, major: int, cuda: tuple[int, int], needed: bool
) -> None:
    assert needs_adapter(major, ToolVersion(*cuda)) is needed


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def tools(folder: Path, fatbinary: Path) -> CudaTools:
    libdevice = folder / "elsewhere" / "libdevice.10.bc"
    libdevice.parent.mkdir(parents=True)
    libdevice.write_bytes(b"BC\xc0\xde")
    ptxas, nvlink = executable(folder / "one" / "ptxas"), executable(folder / "two" / "nvlink")
    return CudaTools(CUDA_13, ptxas, nvlink, fatbinary, libdevice)


def test_a_linked_cubin_keeps_the_architecture_that_it_was_made_for(tmp_path: Path) -> None:
    # The wrapper of LLVM 22 mistakes each cubin for sm_90 for one for sm_90a (e_flags 0x800).
    program = executable(tmp_path / "fatbinary", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    plain, other = tmp_path / "it's $HOME*" / "k.sm_90.o", tmp_path / "k.sm_100a.o"
    cubins = (("sm_90", plain), ("sm_100a", other))
    script = executable(tmp_path / "script", fatbinary_script(program, cubins=cubins))
    said = (f"--image3=kind=elf,sm=90a,file={plain}", f"--image3=kind=elf,sm=100,file={other}")
    foreign = f"--image3=kind=elf,sm=90a,file={tmp_path / 'k.sm_90a.o'}"
    completed = ProcessRunner().run(Command((str(script), "-64", *said, foreign)))
    assert completed.stdout.splitlines() == [
        "-64",
        f"--image3=kind=elf,sm=90,file={plain}",
        f"--image3=kind=elf,sm=100a,file={other}",
        foreign,
    ]


def test_the_script_rewrites_images_and_forwards_the_rest(tmp_path: Path) -> None:
    program = executable(
        tmp_path / "it's here" / "fatbinary", '#!/bin/sh\nprintf "%s\\n" "$@"\nexit 3\n'
    )
    script = executable(tmp_path / "script", fatbinary_script(program))
    arguments = (
        "-64",
        "--create",
        "out put.fatbin",
        "--image=profile=sm_90a,file=/tmp/a,b c.img",
        "--image=profile=compute_80,file=$HOME/*.s",
        "--image3=kind=elf,sm=90,file=x",
        "--image=other",
        "",
    )
    completed = ProcessRunner().run(Command((str(script), *arguments)))
    assert completed.returncode == 3
    assert completed.stdout.splitlines() == [
        "-64",
        "--create",
        "out put.fatbin",
        "--image3=kind=elf,sm=90a,file=/tmp/a,b c.img",
        "--image3=kind=ptx,sm=80,file=$HOME/*.s",
        "--image3=kind=elf,sm=90,file=x",
        "--image=other",
        "",
    ]


def test_a_directory_gathers_tools_from_everywhere(tmp_path: Path) -> None:
    found = tools(tmp_path, executable(tmp_path / "three" / "fatbinary"))
    directory = write_cuda_directory(tmp_path / "cuda", found, 22)
    for name in ("ptxas", "nvlink", "fatbinary"):
        assert (directory / "bin" / name).resolve() == getattr(found, name)
    assert (directory / "nvvm" / "libdevice" / "libdevice.10.bc").read_bytes() == b"BC\xc0\xde"
    header = (directory / "include" / "cuda.h").read_text(encoding="utf-8")
    assert header == "#define CUDA_VERSION 13000\n"


def test_an_old_wrapper_gets_the_script_for_fatbinary(tmp_path: Path) -> None:
    found = tools(tmp_path, executable(tmp_path / "three" / "fatbinary"))
    script = write_cuda_directory(tmp_path / "cuda", found, 19) / "bin" / "fatbinary"
    assert script.read_text(encoding="utf-8") == fatbinary_script(found.fatbinary)
    assert os.access(script, os.X_OK)


def test_programs_that_may_not_be_executed_are_copied(tmp_path: Path) -> None:
    fatbinary = executable(tmp_path / "three" / "fatbinary", "#!/bin/sh\necho real\n")
    fatbinary.chmod(0o644)
    folder = write_cuda_directory(tmp_path / "cuda", tools(tmp_path, fatbinary), 19) / "bin"
    completed = ProcessRunner().run(Command((str(folder / "fatbinary"),)))
    assert completed.stdout == "real\n"


def test_a_directory_may_be_filled_again(tmp_path: Path) -> None:
    found = tools(tmp_path, executable(tmp_path / "three" / "fatbinary"))
    write_cuda_directory(tmp_path / "cuda", found, 22)
    directory = write_cuda_directory(tmp_path / "cuda", found, 19)
    assert not (directory / "bin" / "fatbinary").is_symlink()
    assert found.fatbinary.read_text(encoding="utf-8") == "#!/bin/sh\n"


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    found = tools(tmp_path, executable(tmp_path / "three" / "fatbinary"))
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputOutputError, match="cannot write"):
        write_cuda_directory(tmp_path / "file", found, 19)
