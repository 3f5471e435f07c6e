"""Tools that write recorded outputs of the real tools, so that complete invocations can be tested quickly.

usage: python -m support.recorded    (in tests/: records the outputs of mlir-opt and mlir-translate again)
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
# Makes the driver lower host and device modules separately, because the recordings are separate.
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
# Packaging reads only the header of a relocatable x86-64 object.
_OBJECT = b"\x7fELF\2\1\1" + bytes(9) + b"\1\0\x3e\0"
_HEADS = {".o": _OBJECT, ".bc": b"BC\xc0\xde", ".spv": b"\x03\x02\x23\x07"}


@dataclass
class RecordedTools:
    """A runner for tools in a directory, which only writes recorded outputs."""

    root: Path
    commands: list[Command] = field(default_factory=list)
    fails: Callable[[Command], bool] = lambda _: False
    said: str = "error: it does not like this"
    """The message of a tool that fails."""
    outputs: dict[str, bytes] = field(default_factory=dict)
    """Outputs by file name, in place of the recorded ones."""

    def install(self, *majors: int) -> None:
        """Create the tools, for LLVM releases and one CUDA release."""
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
        """Do nothing, because no tool is loaded."""

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        """Write the output; print the version for --version."""
        assert input_text is None
        self.commands.append(command)
        program = PurePath(command.argv[0])
        if "--version" in command.argv:
            major = program.parts[-3].removeprefix("llvm-")
            said = _SAYS.get(program.name, "LLVM version {major}.1.0").format(major=major)
            return Completed(command, 0, f"{said}\n", "")
        _, asks_for_file, name = command.argv[-1].partition("-print-file-name=")
        if asks_for_file:
            # As clang does, print the bare name of a file that is not there.
            library = program.parent.parent / "lib" / name
            return Completed(command, 0, f"{library if Path(library).exists() else name}\n", "")
        if self.fails(command):
            return Completed(command, 1, "", self.said)
        named = "qcs" if program.name == "llvm-ar" else "-o"
        if named in command.argv:
            output = Path(command.cwd or "", command.argv[command.argv.index(named) + 1])
            # Cacheable steps give all inputs the same name.
            recorded = RECORDED / output.name.replace("input.", "device0.")
            given = self.outputs.get(output.name)
            if given is None and recorded.is_file():
                given = recorded.read_bytes()
            output.write_bytes(given or _HEADS.get(output.suffix, b"text"))
        return Completed(command, 0, "", "")

    def run_attached(self, command: Command) -> int:
        """Print nothing."""
        self.commands.append(command)
        return 0

    def interrupt(self) -> None:
        """Do nothing, because no process runs."""

    def stop(self) -> None:
        """Do nothing, because no process runs."""


def record(into: Path) -> None:
    """Write the outputs of the tools of LLVM 22 for the program, without paths of this host."""
    with tempfile.TemporaryDirectory() as folder:
        made = _compiled(("-c", _PARTS_ALONE), EVERY_KIND, Path(folder))
        for name in ("normal.mlir", "host.ll"):
            shutil.copy(made / name, into)
        for file in (made / "split").iterdir():
            kind = "".join(file.suffixes)
            if kind.endswith(".low.mlir") or kind in {".ll", ".gfx90a.ll", ".spirv.ll"}:
                shutil.copy(file, into)
    with tempfile.TemporaryDirectory() as folder:
        made = _compiled(("-m", "mlir_offload.driver"), "--offload-arch=sm_90", Path(folder))
        for name in ("joint.low.mlir", "joint.ll"):
            shutil.copy(made / name, into)


def _compiled(driver: tuple[str, str], targets: str, folder: Path) -> Path:
    """Compile the program, and return the directory with its intermediate files."""
    words = ("--llvm=22", targets, "-c", PROGRAM.name, "-o", f"{folder}/scale.o")
    argv = (sys.executable, *driver, *words, f"-save-temps={folder}")
    subprocess.run(argv, check=True, cwd=PROGRAM.parent)
    return folder / "0"


if __name__ == "__main__":
    record(RECORDED)
