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
# The time between SIGTERM and SIGKILL for a program that exceeds its limit.
_GRACE_S = 5.0
# Prefixes of environment variables of the dynamic loader (ld.so(8)).
_LOADER = ("LD_", "GLIBC_")
Environment = tuple[tuple[str, str], ...]


class Command(Struct, frozen=True):
    """A command: arguments, changes of the environment, working directory.

    A command `in_background` has a low scheduling priority. The descriptors in `inherited` stay open
    in the program. A program is terminated after `limit_s` seconds, if that is set.
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
        """Return whether an argument makes the program use the jobserver."""
        return any(argument.endswith("-jobs=jobserver") for argument in self.argv)

    @property
    def needs_start(self) -> bool:
        """Return whether the command cannot run in a fork of the loaded program."""
        is_bound = bool(self.inherited) or self.limit_s is not None
        return is_bound or any(name.startswith(_LOADER) for name, _ in self.environment)

    def __str__(self) -> str:
        """Return the command as a shell line."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in self.environment]
        call = " ".join([*(["env", *assignments] if assignments else []), shlex.join(self.argv)])
        return f"(cd {shlex.quote(str(self.cwd))} && {call})" if self.cwd else call


def as_operand(name: str) -> str:
    """Return a file name in a form that no tool parses as an option."""
    return f"./{name}" if name.startswith(("-", "@")) else name


class Completed(Struct, frozen=True):
    """The result of a command: exit status (negative: signal) and output as text."""

    command: Command
    returncode: int
    stdout: str
    stderr: str


class Runner(Protocol):
    """Runs commands. Tests replace it by a recorder."""

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        """Run the command until it exits, and return the result, whatever the exit status."""


class ProcessRunner(Struct):
    """Runs real programs, each in its own process group, and can terminate all of them."""

    # None if every program is started normally.
    fork_servers: ForkServers | None = None
    _children: set[subprocess.Popen[str] | Fork] = field(default_factory=set)
    # Reentrant, because a signal handler calls stop() in the thread that may hold the lock.
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _stopping: bool = False
    _starting_threads: set[int] = field(default_factory=set)

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        """Run the command until it exits.

        Raises ToolchainError if the program cannot be started, ToolFailedError if it exceeds its time
        limit, InputOutputError if it failed because of a system limit. Raises KeyboardInterrupt after
        `stop`, because the exit status is then meaningless.
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
            # Otherwise the program would continue, and leave files behind.
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
        """Run the command in a fork. Return None if that fails; the caller then starts the program.

        Error output therefore always comes from a program that was started normally.
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

        The result for a program ended by signal N is 128 + N, as in a shell. Raises ToolchainError if
        the program cannot be started.
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
        """Terminate all children, start no others, and raise KeyboardInterrupt: for signal handlers.

        If the signal interrupts this thread while it starts a child, the method that starts the child
        terminates it and raises the exception.
        """
        self.stop()
        if threading.get_ident() not in self._starting_threads:
            raise KeyboardInterrupt

    @property
    def is_stopping(self) -> bool:
        """Return whether `stop` was called."""
        return self._stopping

    def forget(self, child: subprocess.Popen[str] | Fork) -> None:
        """Remove a child that has exited, so that `stop` does not signal it."""
        with self._lock:
            self._children.discard(child)

    def stop(self) -> None:
        """Terminate all running children, and start no others."""
        with self._lock:
            self._stopping = True
            children = list(self._children)
        for child in children:
            _terminate(child)

    def share_fork_servers(self) -> SharedServers | None:
        """Start the fork servers, if any, for processes that inherit their descriptors."""
        if self.fork_servers is None:
            return None
        with self._lock:
            return self.fork_servers.share(os.environ, _open_server)

    def close(self) -> None:
        """End the fork servers."""
        if self.fork_servers is not None:
            self.fork_servers.close()

    def _start_fork(self, servers: ForkServers, command: Command) -> Fork | None:
        environment = {**os.environ, **dict(command.environment)}
        thread = threading.get_ident()
        self._starting_threads.add(thread)
        try:
            # Released before the fork: other programs can start while the server is still loading.
            with self._lock:
                if self._stopping:
                    raise KeyboardInterrupt
                found = servers.find(command.argv[0], os.environ, _open_server)
            if found is None:
                return None
            server, entry = found
            fork = server.fork(entry, command.argv, environment, command.cwd)
            if fork is None:
                return None
            with self._lock:
                self._children.add(fork)
                servers.load_all(os.environ, _open_server)
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
    """A running program that answers each input line with one line, and exits at the end of its input."""

    runner: ProcessRunner
    child: subprocess.Popen[str]

    def ask(self, line: str) -> str:
        """Return the answer to a line, an empty string if the program has exited.

        Raises KeyboardInterrupt after `ProcessRunner.stop`.
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
        """Close the input of the program, and wait until it exits."""
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
            # Not a new session, because Linux schedules each session as a group, and priorities
            # apply only within a group.
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
    """Start a program as a fork server. If the library does not load, the output of the program is discarded."""
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
    """Terminate a child; kill it after the grace period."""
    _terminate(child)
    try:
        child.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        # A process that left the group may keep the pipes open. Do not wait for it.
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


# Linker messages about symbols do not contain "error". The driver's "linker command failed" has no information.
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
    """Run the command. Raises ToolFailedError, with the standard error, if the exit status is not 0."""
    completed = runner.run(command, input_text=input_text)
    if completed.returncode != 0:
        raise tool_failed(completed)
    return completed


def tool_failed(completed: Completed) -> ToolFailedError:
    """Return the error for a failed program: its first error message, the status and the command."""
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
