"""Tools that write what the real ones wrote once, so that a whole call is seen in a moment.

usage: python -m support.recorded    (in tests/, records again what mlir-opt and mlir-translate write)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from mlir_offload.toolchain.process import Command, Completed

RECORDED = Path(__file__).resolve().parents[1] / "unit" / "recorded"
PROGRAM = RECORDED / "scale.mlir"
EVERY_KIND = "--offload-arch=sm_90,gfx90a,host,spirv64"
# A large program is lowered part by part, as the recordings are.
_PARTS_ALONE = """\
from mlir_offload.driver import cli
from mlir_offload.driver.compile import device
device._MOST_BYTES = 0
cli.main()
"""
_SAYS = {
    "ptxas": "Cuda compilation tools, release 13.0, V13.0.88",
    **dict.fromkeys(("clang", "clang++"), "Debian clang version {major}.1.0"),
}
_LLVM = (
    *(
        "clang",
        "clang-linker-wrapper",
        "clang-nvlink-wrapper",
        "ld.lld",
        "llvm-ar",
        "llvm-link",
        "llvm-objcopy",
    ),
    *("mlir-opt", "mlir-translate", "opt", "llvm-dis", "clang-sycl-linker"),
)
_CUDA = ("bin/ptxas", "bin/nvlink", "bin/fatbinary", "lib64/libcudart_static.a")
# The head of a relocatable x86-64 object is all that packaging looks at.
_OBJECT = b"\x7fELF\2\1\1" + bytes(9) + b"\1\0\x3e\0"
_HEADS = {".o": _OBJECT, ".bc": b"BC\xc0\xde", ".spv": b"\x03\x02\x23\x07"}


@dataclass
class RecordedTools:
    """A runner for tools that lie below a directory, and do nothing but write what was recorded."""

    root: Path
    commands: list[Command] = field(default_factory=list)
    fails: Callable[[Command], bool] = lambda _: False
    said: str = "error: it does not like this"
    """What a tool that fails prints."""
    outputs: dict[str, bytes] = field(default_factory=dict)
    """What the tools write into files of these names."""

    def install(self, *majors: int) -> None:
        """Put the tools there, for releases of LLVM and one of CUDA."""
        files = [f"llvm-{major}/bin/{name}" for major in majors for name in _LLVM]
        files += [f"llvm-{major}/lib/libLLVM.so.{major}.1" for major in majors]
        files += [f"cuda/{name}" for name in (*_CUDA, "nvvm/libdevice/libdevice.10.bc")]
        files.append("bin/launch")
        for name in files:
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"#!/bin/false\n")
            file.chmod(0o755)

    def close(self) -> None:
        """Do nothing: nothing is loaded."""

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        """Write the output; say the release where that is asked for."""
        assert input_text is None
        self.commands.append(command)
        program = PurePath(command.argv[0])
        if "--version" in command.argv:
            major = program.parts[-3].removeprefix("llvm-")
            said = _SAYS.get(program.name, "LLVM version {major}.1.0").format(major=major)
            return Completed(command, 0, f"{said}\n", "")
        if self.fails(command):
            return Completed(command, 1, "", self.said)
        named = "qcs" if program.name == "llvm-ar" else "-o"
        if named in command.argv:
            output = Path(command.cwd or "", command.argv[command.argv.index(named) + 1])
            # A step that a cache keeps names its input alike whatever it is.
            recorded = RECORDED / output.name.replace("input.", "device0.")
            given = self.outputs.get(output.name)
            if given is None and recorded.is_file():
                given = recorded.read_bytes()
            output.write_bytes(given or _HEADS.get(output.suffix, b"text"))
        return Completed(command, 0, "", "")

    def interrupt(self) -> None:
        """There is nothing to end."""

    def stop(self) -> None:
        """There is nothing to end."""


def record(into: Path) -> None:
    """Write what the tools of LLVM 22 make of the program, without the places of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        driver = (sys.executable, "-c", _PARTS_ALONE)
        words = ("--llvm=22", EVERY_KIND, "-c", PROGRAM.name, "-o", f"{folder}/scale.o")
        argv = (*driver, *words, f"-save-temps={folder}")
        subprocess.run(argv, check=True, cwd=PROGRAM.parent)
        made = Path(folder, "0")
        for name in ("normal.mlir", "host.ll"):
            shutil.copy(made / name, into)
        for file in (made / "split").iterdir():
            kind = "".join(file.suffixes)
            if kind.endswith(".low.mlir") or kind in {".ll", ".gfx90a.ll", ".spirv.ll"}:
                shutil.copy(file, into)


if __name__ == "__main__":
    record(RECORDED)
