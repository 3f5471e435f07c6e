"""Run the programs of an LLVM build on small inputs, and record which ones were run."""

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
    """A program is missing, fails, or prints no answer; the rows of the nearest release are used."""


class ContradictionError(MlirOffloadError):
    """A program's format or option is known but not supported by this driver; no release can be used."""


class Learned(Struct):
    """The result of one family of probes; `assumed` and `refused` describe rows, with the reason."""

    rows: list[LearnedRow] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class ProbeBench(Struct):
    """The programs, their working directory, and the names of the programs that were run.

    `base` is the release whose rows are used if the tools give no answer. `cuda` is the root of a CUDA
    toolkit. `search_path` is PATH; the directory of the tools precedes it, as in a real link.
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
        """Run a program of the build. Raises CannotLearnError if it is not installed or times out."""
        if not self.llvm.has(name):
            msg = f"{name} is not installed"
            raise CannotLearnError(msg)
        return self.start(self.llvm.tool(name), arguments, text)

    def assemble(self, arguments: Sequence[str]) -> None:
        """Run ptxas of the CUDA toolkit. Raises CannotLearnError if it fails."""
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
        """Run a program in the working directory. Raises CannotLearnError if it cannot be started or times out."""
        argv = (str(program), *map(str, arguments))
        self.started.append(program.name)
        path = f"{self.llvm.prefix / 'bin'}{os.pathsep}{self.search_path}"
        # A dry run of the wrapper leaves temporary files, so TMPDIR is the working directory.
        variables = (("PATH", path), ("TMPDIR", str(self.folder)), *environment)
        command = Command(argv, variables, cwd=self.folder, limit_s=PROBE_LIMIT_S)
        try:
            return self.runner.run(command, input_text=text)
        except CannotLearnError:
            raise
        except MlirOffloadError as error:
            raise CannotLearnError(error.message) from error

    def output(self, name: str, arguments: Sequence[str | Path], text: str = "") -> str:
        """Return the standard output of a program. Raises CannotLearnError if it fails."""
        completed = self.run(name, arguments, text)
        if completed.returncode != 0:
            reason = (completed.stderr.strip().splitlines() or ["no message"])[0]
            msg = f"{name} ended with status {completed.returncode}: {reason}"
            raise CannotLearnError(msg)
        return completed.stdout

    def compile(self, triple: str, arguments: Sequence[str | Path], text: str) -> str:
        """Return the standard output of clang's frontend for a source."""
        # OpenMP requires a file, because clang puts its device and inode numbers into kernel names.
        (self.folder / "probe.c").write_text(text, encoding="utf-8")
        return self.output(_CLANG, ("-cc1", "-triple", triple, *arguments, "probe.c", "-o", "-"))

    @property
    def host(self) -> str:
        """Return the triple of the host, as LLVM's tools spell it."""
        return host_triple()
