"""Two installations that do not share files: one has MLIR and no clang, the other the reverse."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_LOWERING = ("mlir-opt", "mlir-translate")
_LINKING = ("clang", "clang++", "ld.lld", "clang-linker-wrapper", "clang-nvlink-wrapper")


@dataclass(frozen=True, slots=True)
class Machine:
    """A directory that represents a host with some programs of one LLVM release."""

    root: Path
    compiler: Sequence[str]

    @property
    def llvm(self) -> Path:
        """Return the prefix of its LLVM."""
        return self.root / "llvm"

    @property
    def home(self) -> Path:
        """Return its user's working directory."""
        return self.root / "home"

    def environment(self, **variables: str) -> dict[str, str]:
        """Return its complete environment: PATH, HOME, TMPDIR, and the Python variables of this process."""
        path = os.pathsep.join((str(self.llvm / "bin"), "/usr/bin", "/bin"))
        places = {"PATH": path, "HOME": str(self.home), "TMPDIR": str(self.root / "tmp")}
        python = {key: value for key, value in os.environ.items() if key.startswith("PYTHON")}
        return {**places, **python, **variables}

    def run(
        self, *argv: str, status: int = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on this host and check its exit status."""
        environment = self.environment(**variables)
        done = subprocess.run(
            argv, cwd=self.home, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, f"{argv}\n{done.stdout}\n{done.stderr}"
        return done

    def mlir_offload(
        self, subcommand: str, *words: str, status: int = 0, cuda_path: str = "no-cuda"
    ) -> subprocess.CompletedProcess[str]:
        """Run a subcommand of the compiler with the tools of this host."""
        tools = (f"--llvm={self.llvm}", *((f"--cuda-path={cuda_path}",) if cuda_path else ()))
        return self.run(*self.compiler, subcommand, *tools, *words, status=status)


def lowering_machine(root: Path, major: int, compiler: Sequence[str]) -> Machine:
    """Return a host with mlir-opt and mlir-translate of a release."""
    return _machine(Machine(root, compiler), major, _LOWERING)


def linking_machine(
    root: Path, major: int, compiler: Sequence[str], *, without: tuple[str, ...] = ()
) -> Machine:
    """Return a host with clang, the linker wrapper and lld of a release."""
    programs = tuple(name for name in _LINKING if name not in without)
    return _machine(Machine(root, compiler), major, programs)


def _machine(machine: Machine, major: int, programs: tuple[str, ...]) -> Machine:
    for directory in (machine.llvm / "bin", machine.home, machine.root / "tmp"):
        directory.mkdir(parents=True)
    for name in programs:
        program = Path(f"/usr/lib/llvm-{major}/bin/{name}")
        if program.exists():
            (machine.llvm / "bin" / name).symlink_to(program)
    return machine
