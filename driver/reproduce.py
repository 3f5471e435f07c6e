"""Pack an invocation and the files that it reads into a reproducer archive."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import platform
import re
import shlex
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from msgspec import Struct, field

from mlir_offload.driver import __version__
from mlir_offload.driver.call_files import Call, read_call
from mlir_offload.driver.message.diagnostic import failure_messages
from mlir_offload.driver.message.journal import Failure, Journal, Step
from mlir_offload.driver.message.report import report
from mlir_offload.driver.message.text import render_error
from mlir_offload.driver.system.workspace import open_output
from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.process import Command, Runner

_WORK = "work"
# Variables that affect the result, other than the driver's own. They are recorded as the user set them.
_VARIABLES = (
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "SOURCE_DATE_EPOCH"),
    *("CUDA_PATH", "CUDA_HOME", "ROCM_PATH", "LC_ALL", "LANG"),
)
_PREFIX = "MLIR_OFFLOAD_"
_VERSION = re.compile(r"\b(?:version|release) \d")
_ABSOLUTE = re.compile(r"(?<![\w.)}-])/(?:[^\s/:=,'\"]+/)+([^\s/:=,'\"]*)")
_README = """\
An invocation of mlir-offload, to reproduce it.

  sh run.sh      runs the invocation; options such as --llvm=22 or --llvm=/opt/llvm may follow.
                 If mlir-offload is not on PATH, set MLIR_OFFLOAD to its path
{step}
files/           the input files, under their original names: a name that begins with / is below
                 __root__, one with .. below __up__
steps            the steps up to the end of the invocation, as shell lines; programs have no
                 directories, intermediate files are in work/
tools            the releases of the programs
environment      the environment variables that affect the result
{error}
run.sh contains the options of response files and configuration files. {left_out}
"""


class _Entries(Struct, frozen=True):
    """The files of an archive, by name. `programs` are the names of executable ones."""

    files: dict[str, bytes] = field(default_factory=dict)
    programs: set[str] = field(default_factory=set)

    def add_text(self, name: str, text: str) -> None:
        self.files[name] = text.encode("utf-8", "surrogateescape")

    def add_script(self, name: str, text: str) -> None:
        self.add_text(name, text)
        self.programs.add(name)


def pack_call(
    arguments: Sequence[str], runner: Runner, error: MlirOffloadError | None = None
) -> None:
    """Write the archive to the path of --reproduce=, or after a crash to the current or temporary directory.

    The hint of `error` gets the path. Raises InputOutputError if the archive was requested and cannot be
    written; after a crash such an error is ignored.
    """
    current = report()
    content = reproducer(arguments, current.journal, runner, os.environ, error)
    wanted = current.options.reproduce
    if wanted is not None:
        _write(wanted, content)
        written = str(wanted)
    else:
        digest = hashlib.sha256(content).hexdigest()[:12]
        written = _write_somewhere(f"mlir-offload-crash-{digest}.tar", content)
    if error is not None and written:
        hint = f"{written} reproduces the error on any machine, for a report"
        error.hint = f"{error.hint}; {hint}" if error.hint else hint


def _write_somewhere(name: str, content: bytes) -> str:
    """Write to the current directory, or else to the temporary one; return the path, empty if both fail."""
    for place in (Path(name), Path(tempfile.gettempdir(), name)):
        with contextlib.suppress(MlirOffloadError, OSError):
            _write(place, content)
            return str(place)
    return ""


def _write(path: Path, content: bytes) -> None:
    with open_output(path) as descriptor, open(descriptor, "wb", closefd=False) as stream:
        stream.write(content)


def reproducer(
    arguments: Sequence[str],
    journal: Journal,
    runner: Runner,
    environment: Mapping[str, str],
    error: MlirOffloadError | None = None,
) -> bytes:
    """Return the archive of an invocation and its inputs; equal invocations on equal files give equal bytes.

    Unreadable files are left out, because their absence may be the cause of the failure.
    """
    call = read_call(arguments)
    failure = journal.failure_of(error) if error else None
    entries = _Entries()
    for name, path in call.files.items():
        if path.is_file() and os.access(path, os.R_OK):
            entries.files[f"files/{name}"] = path.read_bytes()
    shown = _Shown(journal.workspace, call)
    steps = _relevant_steps(journal.steps, failure)
    entries.add_text("steps", "".join(f"{shown.line(step)}\n" for step in steps))
    entries.add_text("tools", _tools(steps, runner))
    variables = _variables(environment)
    entries.add_text("environment", "".join(f"{k}={v}\n" for k, v in variables.items()))
    entries.add_script("run.sh", _run_script(call, variables))
    if failure is not None:
        for path, content in failure.files.items():
            entries.files[f"files/{shown.path(path)}"] = content
        entries.add_script("step.sh", _step_script(shown, steps[-1]))
    if error is not None:
        text = "\n".join(render_error(failure_messages(one, None)) for one in error.every)
        entries.add_text("error", f"{shown.text(text)}\n")
    entries.add_text("README", _readme(call, error=error, failure=failure))
    return _tar(entries, call.directories)


def _readme(call: Call, *, error: MlirOffloadError | None, failure: Failure | None) -> str:
    step = "  sh step.sh     runs only the failed program, on its input files"
    left_out = (
        f"Omitted, because they contain paths: {' '.join(call.left_out)}" if call.left_out else ""
    )
    return _README.format(
        step=step if failure else "",
        error="error            the error message" if error else "",
        left_out=left_out,
    )


def _run_script(call: Call, variables: Mapping[str, str]) -> str:
    exported = "".join(
        f"export {name}={shlex.quote(value)}\n"
        for name, value in variables.items()
        if "/" not in value
    )
    words = [*((call.subcommand,) if call.subcommand else ()), '"$@"', shlex.join(call.arguments)]
    return (
        f'#!/bin/sh\ncd "$(dirname "$0")/files" || exit 2\n{exported}'
        f"exec ${{MLIR_OFFLOAD:-mlir-offload}} {' '.join(words)}\n"
    )


def _step_script(shown: _Shown, step: Step) -> str:
    folders = sorted({str(PurePath(shown.path(Path(word))).parent) for word in _outputs(step)})
    made = f"mkdir -p {shlex.join(folders)}\n" if folders else ""
    return f'#!/bin/sh\ncd "$(dirname "$0")/files" || exit 2\n{made}exec {shown.line(step)}\n'


class _Shown(Struct, frozen=True):
    """Rewrites commands so that they contain no path of this host."""

    workspace: Path | None
    call: Call

    def line(self, step: Step) -> str:
        """Return a step as a shell line."""
        variables = [
            f"{name}={self.text(value)}" for name, value in step.environment if name != "TMPDIR"
        ]
        words = (PurePath(step.argv[0]).name, *map(self._word, step.argv[1:]))
        return shlex.join(("env", *variables, *words) if variables else words)

    def path(self, path: Path) -> str:
        """Return the name of a file in the archive."""
        return self._word(str(path))

    def text(self, text: str) -> str:
        """Return text with the workspace replaced by `work`, and other absolute paths by their file names."""
        if self.workspace is not None:
            # With -save-temps the workspace may have a short name, so that only complete paths may match.
            workspace = rf"(?<![\w./-]){re.escape(str(self.workspace))}(?![\w.-])"
            text = re.sub(workspace, _WORK, text)
        return _ABSOLUTE.sub(r"\1", text)

    def _word(self, word: str) -> str:
        return self.call.renamed.get(word) or self.text(word)


def _relevant_steps(steps: Sequence[Step], failure: Failure | None) -> tuple[Step, ...]:
    """Return the steps in a deterministic order: each after the steps whose output it reads.

    For a failure, only the step that failed and its prerequisites: concurrent steps differ from run to run.
    """
    made = {output: step for step in steps for output in _outputs(step)}
    roots = sorted(steps, key=lambda step: step.argv)
    if failure is not None:
        failed = failure.run.completed.command
        roots = [step for step in steps if step.argv == failed.argv and step.status != 0][:1]
    ordered: dict[Step, None] = {}
    visited: set[Step] = set()
    pending = [(step, False) for step in reversed(roots)]
    while pending:
        step, has_needs = pending.pop()
        if has_needs:
            ordered[step] = None
        elif step not in visited:
            visited.add(step)
            pending.append((step, True))
            pending += [(need, False) for need in _needs(step, made) if need is not step]
    return tuple(ordered)


def _outputs(step: Step) -> Iterable[str]:
    """Return the files that a step writes; for a program those after -o."""
    return step.writes or (
        word for flag, word in zip(step.argv, step.argv[1:], strict=False) if flag == "-o"
    )


def _needs(step: Step, made: Mapping[str, Step]) -> Iterator[Step]:
    """Yield the steps whose output a step reads. Some steps write a directory."""
    words = step.reads or (word.rpartition("=")[2].removeprefix("@") for word in step.argv[1:])
    for name in words:
        for path in (name, *map(str, PurePath(name).parents)):
            if path in made:
                yield made[path]
                break


def _tools(steps: Iterable[Step], runner: Runner) -> str:
    """Return the version of each program, sorted by name, one per line."""
    programs = {PurePath(step.argv[0]).name: step.argv[0] for step in steps}
    programs.pop("mlir-offload", None)
    own = f"mlir-offload {__version__}, Python {platform.python_version()}, {platform.machine()}"
    said = [f"{name}: {_version(programs[name], runner)}" for name in sorted(programs)]
    return "".join(f"{line}\n" for line in (own, *said))


def _version(program: str, runner: Runner) -> str:
    completed = runner.run(Command((program, "--version")))
    lines = [line.strip() for line in completed.stdout.splitlines() if line.strip()]
    return next((line for line in lines if _VERSION.search(line)), "says no release")


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    names = sorted(name for name in environment if name in _VARIABLES or name.startswith(_PREFIX))
    return {name: environment[name] for name in names}


def _tar(entries: _Entries, directories: Iterable[str]) -> bytes:
    """Return the archive without times and owners and in name order: equal content gives equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted({"files", *(f"files/{directory}" for directory in directories)}):
            folder = tarfile.TarInfo(f"reproduce/{name}")
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        for name, content in sorted(entries.files.items()):
            info = tarfile.TarInfo(f"reproduce/{name}")
            info.size, info.mode = len(content), 0o755 if name in entries.programs else 0o644
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
