"""Run the steps of a build. Each is a shell command, whether it runs a program or code of this process."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.driver.message import escape, tool_error
from mlir_offload.driver.message.journal import Step as NotedStep
from mlir_offload.driver.message.journal import StepTime, ToolRun
from mlir_offload.driver.message.report import report, show_output, show_tool_messages
from mlir_offload.driver.option import response_file
from mlir_offload.driver.step.step import Step
from mlir_offload.driver.system.parallel import JobSlots
from mlir_offload.driver.system.workspace import make_directory, publish
from mlir_offload.toolchain.errors import InputOutputError, MlirOffloadError, ToolFailedError
from mlir_offload.toolchain.process import Command, Completed, Runner, tool_failed

Diagnose = Callable[[Completed], MlirOffloadError]

_DISK_PROBLEMS = (
    "No space left on device",
    "Disk quota exceeded",
    "Read-only file system",
    "File too large",
    "File size limit exceeded",
)
# The status of a program that a signal ended, and how a shell or a compiler driver reports it.
_OVER_LIMIT = (-signal.SIGXFSZ, 128 + signal.SIGXFSZ)
# Command lines up to this length work on every system.
_SHORT = 1 << 16
# Magic bytes by file extension. A tool that exits with 0 may still have written another format.
_MAGIC = {".bc": (b"BC\xc0\xde",), ".o": (b"\x7fELF",), ".spv": (b"\x03\x02\x23\x07",)}
# Options before an argument for clang -cc1 or for LLVM.
_PASSING = ("-Xclang", "-mllvm")


_STANDARD_OUTPUT = Path("-")


class _Once:
    """Work that is done once. Concurrent callers wait for it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._lock = threading.Lock()

    def run(self) -> None:
        with self._lock:
            if self._work is not None:
                self._work()
                self._work = None


class Executor(Struct):
    """Runs or prints steps.

    In a dry run, all steps are printed, and only those that determine the following steps run
    (`decides=True`), inside the workspace. `sources` maps a directory of the workspace to the user's file.
    """

    runner: Runner
    show: Callable[[str], None]
    temporary: Path
    slots: JobSlots = field(default_factory=lambda: JobSlots(1))
    verbose: bool = False
    dry_run: bool = False
    programs: set[str] = field(default_factory=set)
    times: list[StepTime] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    sources: Mapping[Path, Path] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _fitted_commands: int = 0
    _shared: dict[Path, _Once] = field(default_factory=dict)

    def tool(
        self,
        command: Command,
        output: Path | None,
        *,
        decides: bool = False,
        diagnose: Diagnose = tool_failed,
        is_shown: bool = False,
    ) -> None:
        """Run a program that writes `output`, and check that it did; print its messages if `is_shown`.

        Raises the error of `diagnose` if it fails, ToolFailedError if the output is missing, empty or of another
        format in spite of exit status 0.
        """
        self.note(command)
        if self.dry_run and not decides:
            return
        # If the linker wrapper fails, it leaves files in TMPDIR, which are removed with the workspace.
        private = replace(
            command,
            argv=(*command.argv, *_color_arguments(command)),
            environment=(*command.environment, ("TMPDIR", str(self.temporary.absolute()))),
            inherited=self.slots.inherited if command.shares_jobs else (),
        )
        self.programs.add(command.argv[0])
        with self._slot(command), self._timed(command.program, output):
            completed = self.runner.run(self._fitted(private))
        if (self.verbose or is_shown) and completed.stderr:
            self._print_output(completed.stderr)
        self._listen(completed, diagnose)
        if output is not None:
            check_made(completed, output)

    def _listen(self, completed: Completed, diagnose: Diagnose) -> None:
        """Report the messages of a program; raise the error if it failed."""
        printed = _with_plain_names(completed)
        # Most programs print nothing.
        plain = escape.without_colors(printed) if printed else ""
        completed = replace(completed, stderr=plain)
        run = ToolRun(completed, self.temporary, self.sources, printed)
        journal = report().journal
        journal.note_tool(run)
        if completed.returncode != 0:
            error = _disk_problem(completed) or tool_error.explained_error(diagnose(completed), run)
            error.printed = printed if error.printed else ""
            journal.note_failure(error, run)
            raise error
        if completed.stdout and completed.command.program.startswith("clang"):
            # Such as `-Wl,--print-map`; all results are files.
            show_output(completed.stdout)
        if completed.stderr:
            show_tool_messages(run)

    def _fitted(self, command: Command) -> Command:
        """Return the command, with a response file if it is too long; only clang gets such command lines."""
        if not command.program.startswith("clang") or sum(map(len, command.argv)) < _SHORT:
            return command

        with self._lock:
            self._fitted_commands += 1
            number = self._fitted_commands
        return response_file.fit(command, self.temporary / f"arguments{number}.rsp")

    def _slot(self, command: Command) -> contextlib.AbstractContextManager[None]:
        """Return the job slot of a program; background programs need none if there are several slots."""
        is_free = command.in_background and self.slots.jobs > 1 and not self.slots.is_shared
        return contextlib.nullcontext() if is_free else self.slots.slot()

    def step(self, step: Step, *, decides: bool = False) -> None:
        """Run a step of this driver in process, and print the equivalent command."""
        line = ("mlir-offload", "step", *step.argv)
        if self._shows_commands:
            self._print_output(shlex.join(line))
        report().journal.note(NotedStep(line, reads=step.reads, writes=step.writes))
        if not self.dry_run or decides:
            with self._timed(f"step {step.name}", None):
                step.run()

    def once(self, output: Path, make: Callable[[], None]) -> Path:
        """Make a file that several parts of the build share; the first caller runs `make`."""
        with self._lock:
            done = self._shared.setdefault(output, _Once(make))
        done.run()
        return output

    def note(self, command: Command) -> None:
        """Print a shell command for an action of this process, such as creating a directory."""
        if self._shows_commands:
            self._print_output(str(command))

    def make_directory(self, path: Path) -> None:
        """Make a directory for intermediate files."""
        self.note(Command(("mkdir", "-p", str(path))))
        make_directory(path)

    def place(self, made: Path, output: Path) -> None:
        """Move a finished file to its output path, or print it to standard output."""
        if output == _STANDARD_OUTPUT:
            self.note(Command(("cat", str(made))))
        else:
            self.note(Command(("cp", str(made), str(output))))
        if self.dry_run:
            return
        if output == _STANDARD_OUTPUT:
            sys.stdout.flush()
            sys.stdout.buffer.write(made.read_bytes())
        else:
            publish(made, output)

    def print_file(self, made: Path) -> None:
        """Write a finished text to standard output."""
        self.note(Command(("cat", str(made))))
        if not self.dry_run:
            sys.stdout.write(made.read_text(encoding="utf-8", errors="surrogateescape"))

    @contextlib.contextmanager
    def _timed(self, label: str, output: Path | None) -> Iterator[None]:
        start = time.monotonic()
        yield
        name = f"{label} {output.name}" if output else label
        self.times.append(StepTime(name, start - self.started, time.monotonic() - start))

    @property
    def _shows_commands(self) -> bool:
        return self.verbose or self.dry_run

    def _print_output(self, text: str) -> None:
        self.show(text.rstrip("\n"))


def _with_plain_names(completed: Completed) -> str:
    """Return the output of a program, with newlines in file names escaped."""
    words = (word for word in completed.command.argv if "\n" in word)
    text = completed.stderr
    for word in words:
        text = text.replace(word, escape.shown(word))
    return text


def _color_arguments(command: Command) -> tuple[str, ...]:
    """Return the option for clang's colors, which it omits if stderr is not a terminal."""
    is_clang = command.program.startswith("clang") and "-c" in command.argv
    return ("-fcolor-diagnostics",) if is_clang and report().has_color else ()


def _disk_problem(completed: Completed) -> InputOutputError | None:
    """Return the error for a tool that could not write its output; None for another failure."""
    problem = next((text for text in _DISK_PROBLEMS if text in completed.stderr), None)
    hint = "free some space, or set TMPDIR to a directory with more"
    if completed.returncode in _OVER_LIMIT:
        problem, hint = "it grew over the limit", "raise the limit: ulimit -f unlimited"
    if problem is None:
        return None
    msg = f"{completed.command.program} could not write an intermediate file: {problem}"
    return InputOutputError(msg, hint=hint)


def check_made(completed: Completed, output: Path) -> None:
    """Raise ToolFailedError unless `output` exists, is not empty and has the format of its extension."""
    program = completed.command.program
    try:
        with output.open("rb") as stream:
            start = stream.read(4)
    except FileNotFoundError:
        problem = f"{program} exited with status 0 but wrote no {output.name}"
    else:
        expected: tuple[bytes, ...] = _MAGIC.get(output.suffix, (start[:1],))
        if any(word.startswith("-flto") for word in completed.command.argv):
            expected += _MAGIC[".bc"]
        is_text = "-S" in completed.command.argv
        if start and (is_text or start.startswith(expected)):
            return
        problem = f"{program} exited with status 0 but {output.name} is {'of another kind' if start else 'empty'}"
    passed = _passed_on(completed.command)
    hint = "run again with -v to see the command and its whole output"
    if passed:
        hint = f"leave out {passed}, if clang prints something instead of compiling; or run clang itself"
    raise ToolFailedError(
        problem, hint=hint, command=str(completed.command), stderr=completed.stderr
    )


def _passed_on(command: Command) -> str:
    """Return the options that clang's driver does not know, for example `-Xclang -ast-dump`."""
    pairs = itertools.pairwise(command.argv)
    found = (f"'{first} {second}'" for first, second in pairs if first in _PASSING)
    return " and ".join(dict.fromkeys(found))
