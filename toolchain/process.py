"""The only module that starts programs."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from mlir_offload.toolchain import fork_server, limit
from mlir_offload.toolchain.errors import ToolchainError, ToolFailedError
from mlir_offload.toolchain.fork_server import Fork, ForkServers, SharedServers
from mlir_offload.toolchain.pattern import pattern

_BACKGROUND_NICENESS = 15
# How long a program that takes too long has to unwind before it is killed.
_GRACE_S = 5.0
# The settings of the dynamic loader (ld.so(8)).
_LOADER = ("LD_", "GLIBC_")
Environment = tuple[tuple[str, str], ...]


class Command(Struct, frozen=True):
    """A program call: argv, what it changes in the environment, its working directory.

    What is not urgent (`in_background`) runs when no other program wants the processors. The
    descriptors in `inherited` stay open in the program. One with a `limit_s` is ended after that time.
    """

    argv: tuple[str, ...]
    environment: Environment = ()
    cwd: Path | None = None
    in_background: bool = False
    inherited: tuple[int, ...] = ()
    limit_s: float | None = None

    @property
    def program(self) -> str:
        """Return the file name of the program."""
        return Path(self.argv[0]).name

    @property
    def shares_jobs(self) -> bool:
        """Return whether the program is told to ask the jobserver for its jobs."""
        return any(argument.endswith("-jobs=jobserver") for argument in self.argv)

    @property
    def needs_start(self) -> bool:
        """Return whether a fork of the loaded program would not do the same, or not end in time."""
        is_bound = bool(self.inherited) or self.limit_s is not None
        return is_bound or any(name.startswith(_LOADER) for name, _ in self.environment)

    def __str__(self) -> str:
        """Return a line that can be pasted into a shell."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in self.environment]
        call = " ".join([*(["env", *assignments] if assignments else []), shlex.join(self.argv)])
        return f"(cd {shlex.quote(str(self.cwd))} && {call})" if self.cwd else call


def as_operand(name: str) -> str:
    """Return a file name spelled so that no tool takes it for an option."""
    return f"./{name}" if name.startswith(("-", "@")) else name


class Completed(Struct, frozen=True):
    """What a finished program left: exit status (negative: signal), output as text."""

    command: Command
    returncode: int
    stdout: str
    stderr: str


class Runner(Protocol):
    """Runs commands; tests record them instead."""

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        """Run the command to its end and return what it left, whatever its exit status."""


class ProcessRunner(Struct):
    """Run real programs, each in a process group of its own, so that all can be ended together."""

    # Of programs that are loaded once.
    fork_servers: ForkServers | None = None
    _children: set[subprocess.Popen[str] | Fork] = field(default_factory=set)
    # Reentrant: a signal handler calls stop() in the thread that may hold the lock.
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _stopping: bool = False
    _starting_threads: set[int] = field(default_factory=set)

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        """Run the command to its end.

        Raises ToolchainError where the program cannot be started, ToolFailedError where it takes
        longer than it may, InputOutputError where a limit of the system ended it, KeyboardInterrupt where all were told to stop: how this one ended means
        nothing then.
        """
        completed = self._run_fork(command) if input_text is None else None
        if completed is not None:
            return completed
        child = self._start(command, has_input=input_text is not None)
        try:
            stdout, stderr = child.communicate(input_text, timeout=command.limit_s)
        except subprocess.TimeoutExpired as error:
            _end(child)
            msg = f"{command.program} did not end within {command.limit_s:g} s"
            raise ToolFailedError(msg, command=str(command)) from error
        except KeyboardInterrupt:
            # What it writes would be left behind.
            _end(child)
            raise
        finally:
            self.forget(child)
        if self._stopping:
            raise KeyboardInterrupt
        if child.returncode != 0:
            reached = limit.limit_of_program(command.program, child.returncode, stderr)
            if reached is not None:
                raise reached
        return Completed(command, child.returncode, stdout, stderr)

    def _run_fork(self, command: Command) -> Completed | None:
        """Run the command in a fork; return None unless that ended well: it is started then.

        What an error looks like is the program's own matter.
        """
        if self.fork_servers is None or command.needs_start:
            return None
        fork = self._start_fork(self.fork_servers, command)
        if fork is None:
            return None
        try:
            status = fork.wait()
            if status is None:
                fork_server.end(fork, _GRACE_S)
            printed = fork.printed()
        except KeyboardInterrupt:
            fork_server.end(fork, _GRACE_S)
            raise
        finally:
            self.forget(fork)
            fork.close()
        if self._stopping:
            raise KeyboardInterrupt
        return Completed(command, 0, *printed) if status == 0 else None

    def talk(self, command: Command) -> Conversation:
        """Start a program that answers each line on its standard input with a line.

        Raises ToolchainError if it cannot be started.
        """
        return Conversation(self, self._start(command, has_input=True, keeps_stderr=True))

    def run_attached(self, command: Command) -> int:
        """Run the command on this terminal's input and output; return its exit status.

        A program ended by signal N gives 128 + N, as in a shell. Raises ToolchainError where it
        cannot be started.
        """
        try:
            returncode = subprocess.call(
                command.argv, env={**os.environ, **dict(command.environment)}, cwd=command.cwd
            )
        except OSError as error:
            msg = f"cannot start {command.argv[0]}: {error.strerror}"
            raise ToolchainError(msg, hint="is TMPDIR on a file system mounted noexec?") from error
        return returncode if returncode >= 0 else 128 - returncode

    def interrupt(self) -> None:
        """End every child, refuse to start another, and raise KeyboardInterrupt: a signal handler.

        Where this thread is just starting a child, that child is not known yet; it is ended, and
        the exception raised, as soon as it is.
        """
        self.stop()
        if threading.get_ident() not in self._starting_threads:
            raise KeyboardInterrupt

    @property
    def is_stopping(self) -> bool:
        """Return whether every child was asked to end."""
        return self._stopping

    def forget(self, child: subprocess.Popen[str] | Fork) -> None:
        """Do not end a child that has ended."""
        with self._lock:
            self._children.discard(child)

    def stop(self) -> None:
        """End every running child and refuse to start another."""
        with self._lock:
            self._stopping = True
            children = list(self._children)
        for child in children:
            _terminate(child)

    def share_fork_servers(self) -> SharedServers | None:
        """Start the fork servers, if there are any, for processes that inherit their descriptors."""
        if self.fork_servers is None:
            return None
        with self._lock:
            return self.fork_servers.share(dict(os.environ), _open_server)

    def close(self) -> None:
        """Let the fork servers end."""
        if self.fork_servers is not None:
            self.fork_servers.close()

    def _start_fork(self, servers: ForkServers, command: Command) -> Fork | None:
        environment = {**os.environ, **dict(command.environment)}
        thread = threading.get_ident()
        self._starting_threads.add(thread)
        try:
            # Not held while a server is loaded and forks: other programs start meanwhile.
            with self._lock:
                if self._stopping:
                    raise KeyboardInterrupt
                found = servers.find(command.argv[0], dict(os.environ), _open_server)
            if found is None:
                return None
            server, entry = found
            fork = server.fork(entry, command.argv, environment, command.cwd)
            if fork is None:
                return None
            with self._lock:
                self._children.add(fork)
                servers.load_all(dict(os.environ), _open_server)
        finally:
            self._starting_threads.discard(thread)
        if self._stopping:
            fork_server.end(fork, _GRACE_S)
            self.forget(fork)
            fork.close()
            raise KeyboardInterrupt
        _set_priority(command, fork.pid)
        return fork

    def _start(
        self, command: Command, *, has_input: bool, keeps_stderr: bool = False
    ) -> subprocess.Popen[str]:
        with self._lock:
            if self._stopping:
                raise KeyboardInterrupt
            self._starting_threads.add(threading.get_ident())
            try:
                child = _open(command, has_input=has_input, keeps_stderr=keeps_stderr)
                self._children.add(child)
            finally:
                self._starting_threads.discard(threading.get_ident())
            if self._stopping:
                _end(child)
                raise KeyboardInterrupt
        _set_priority(command, child.pid)
        return child


class Conversation(Struct, frozen=True):
    """A running program that answers each line with a line; it ends with its standard input."""

    runner: ProcessRunner
    child: subprocess.Popen[str]

    def ask(self, line: str) -> str:
        """Return the answer to a line, nothing if the program has ended.

        Raises KeyboardInterrupt if all programs were told to stop.
        """
        answer = ""
        if self.child.stdin is not None and self.child.stdout is not None:
            with contextlib.suppress(BrokenPipeError):
                self.child.stdin.write(f"{line}\n")
                self.child.stdin.flush()
                answer = self.child.stdout.readline()
        if self.runner.is_stopping:
            raise KeyboardInterrupt
        return answer

    def close(self) -> None:
        """Let the program end, and wait for that."""
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.child.wait()
        self.runner.forget(self.child)


def _open(
    command: Command, *, has_input: bool, keeps_stderr: bool = False
) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if keeps_stderr else subprocess.PIPE,
            env={**os.environ, **dict(command.environment)},
            cwd=command.cwd,
            pass_fds=command.inherited,
            encoding="utf-8",
            errors="surrogateescape",
            # No session of its own: Linux schedules sessions as groups, and a priority counts
            # within a group only.
            process_group=0,
        )
    except OSError as error:
        reached = limit.limit_error(f"cannot start {command.argv[0]}", error.errno)
        if reached is not None:
            raise reached from error
        msg = f"cannot start {command.argv[0]}: {error.strerror}"
        raise ToolchainError(
            msg, hint="check the installation with 'mlir-offload toolchains'"
        ) from error


def _open_server(program: str, environment: Mapping[str, str], socket: int) -> Callable[[], object]:
    """Start a program that becomes a fork server. If it does not, nobody is interested in what it does."""
    child = subprocess.Popen(
        (program,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        pass_fds=(socket,),
        process_group=0,
    )
    return child.wait


def _set_priority(command: Command, pid: int) -> None:
    if command.in_background:
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, pid, _BACKGROUND_NICENESS)


def _terminate(child: subprocess.Popen[str] | Fork) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)


def _end(child: subprocess.Popen[str]) -> None:
    """End a child that takes too long, at once where it does not heed being asked to."""
    _terminate(child)
    try:
        child.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        # What left its process group may hold the pipes open for good: nothing waits for that.
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


# What a linker says of a symbol contains no word "error"; what a driver says of its linker says nothing.
_COMPLAINT = pattern(
    r"^(?!.*linker command failed).*(?:error|undefined (?:reference|symbol))", re.IGNORECASE
)


def describe_status(returncode: int) -> str:
    """Return `exit status N` or `killed by SIGNAME`."""
    if returncode >= 0:
        return f"exit status {returncode}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-returncode).name}"
    return f"killed by signal {-returncode}"


def run_checked(runner: Runner, command: Command, *, input_text: str | None = None) -> Completed:
    """Run the command; raise ToolFailedError with all it said unless it exits with 0."""
    completed = runner.run(command, input_text=input_text)
    if completed.returncode != 0:
        raise tool_failed(completed)
    return completed


def tool_failed(completed: Completed) -> ToolFailedError:
    """Return the error for a program that failed: its first complaint, status and command."""
    lines = [line for line in completed.stderr.splitlines() if line.strip()]
    complaints = [line for line in lines if _COMPLAINT.search(line)]
    first = next(iter(complaints or lines), "")
    status = describe_status(completed.returncode)
    said = f": {first.strip()}" if first else ""
    return ToolFailedError(
        f"{completed.command.program} failed ({status}){said}",
        hint="run again with -v to see the command and its whole output",
        command=str(completed.command),
        stderr=completed.stderr,
    )
