"""Run the programs of one build of LLVM on small inputs, and count how many."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, field

from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.learned_row import LearnedRow
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.process import Command, Completed, Environment, Runner
from mlir_offload.toolchain.target import host_triple
from mlir_offload.toolchain.tool import PROBE_LIMIT_S

_CLANG = "clang"


class CannotLearnError(MlirOffloadError):
    """A program is not there, fails, or says nothing of what is asked: the nearest release counts."""


class ContradictionError(MlirOffloadError):
    """What a program writes or reads is known, and this driver does not write it: no release counts."""


class Learned(Struct):
    """What one family of probes found; `assumed` and `refused` name lists of rows, each with the reason."""

    rows: list[LearnedRow] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class ProbeBench(Struct):
    """The programs, a folder for what they read and write, and the names of those that were run.

    `base` is the release whose rows count where the tools do not tell; `cuda` the root of a CUDA toolkit,
    `search_path` is PATH, before which a link has the folder of the tools, as ours do.
    """

    runner: Runner
    llvm: LlvmToolchain
    folder: Path
    base: int
    cuda: Path | None = None
    search_path: str = ""
    started: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Return how many programs were run."""
        return len(self.started)

    def run(self, name: str, arguments: Sequence[str | Path], text: str = "") -> Completed:
        """Run a program of the build. Raises CannotLearnError where it is not installed or hangs."""
        if not self.llvm.has(name):
            msg = f"{name} is not installed"
            raise CannotLearnError(msg)
        return self.start(self.llvm.tool(name), arguments, text)

    def assemble(self, arguments: Sequence[str]) -> None:
        """Run ptxas of the CUDA toolkit. Raises CannotLearnError where it fails."""
        ptxas = Path("bin") / "ptxas"
        completed = self.start((self.cuda or Path()) / ptxas, arguments)
        if completed.returncode != 0:
            msg = f"ptxas ended with status {completed.returncode}"
            raise CannotLearnError(msg)

    def start(
        self,
        program: Path,
        arguments: Sequence[str | Path],
        text: str = "",
        *,
        environment: Environment = (),
    ) -> Completed:
        """Run a program, in the folder of the bench. Raises CannotLearnError where it cannot be started or hangs."""
        argv = (str(program), *map(str, arguments))
        self.started.append(program.name)
        path = f"{self.llvm.prefix / 'bin'}{os.pathsep}{self.search_path}"
        # A dry run leaves the files that its commands would read.
        variables = (("PATH", path), ("TMPDIR", str(self.folder)), *environment)
        command = Command(argv, variables, cwd=self.folder, limit_s=PROBE_LIMIT_S)
        try:
            return self.runner.run(command, input_text=text)
        except CannotLearnError:
            raise
        except MlirOffloadError as error:
            raise CannotLearnError(error.message) from error

    def output(self, name: str, arguments: Sequence[str | Path], text: str = "") -> str:
        """Return what a program prints. Raises CannotLearnError where it fails."""
        completed = self.run(name, arguments, text)
        if completed.returncode != 0:
            reason = (completed.stderr.strip().splitlines() or ["no message"])[0]
            msg = f"{name} ended with status {completed.returncode}: {reason}"
            raise CannotLearnError(msg)
        return completed.stdout

    def compile(self, triple: str, arguments: Sequence[str | Path], text: str) -> str:
        """Return what the frontend of clang prints for a source."""
        # OpenMP wants a file, whose number it puts into the names of kernels.
        (self.folder / "probe.c").write_text(text, encoding="utf-8")
        return self.output(_CLANG, ("-cc1", "-triple", triple, *arguments, "probe.c", "-o", "-"))

    @property
    def host(self) -> str:
        """Return the triple of the host, as LLVM's own tools spell it."""
        return host_triple()
