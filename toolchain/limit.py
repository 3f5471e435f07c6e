"""Recognize failures caused by system limits, which are not errors of a program or an installation."""

from __future__ import annotations

import errno
import re
import resource
import signal

from mlir_offload.toolchain.errors import InputOutputError
from mlir_offload.toolchain.pattern import pattern

# Messages of the dynamic loader, the C++ library, LLVM and Python for an exhausted resource.
_SAID = {
    errno.EMFILE: re.compile(r"Too many open files"),
    errno.EAGAIN: re.compile(
        r"Resource temporarily unavailable|can't start new thread|pthread_create failed"
    ),
    errno.ENOMEM: re.compile(
        r"failed to map segment|[Cc]annot allocate memory|LLVM ERROR: out of memory|std::bad_alloc"
        r"|cannot create shared object descriptor|^MemoryError|memory exhausted",
        re.MULTILINE,
    ),
}
_LIMITS = {
    errno.EMFILE: (resource.RLIMIT_NOFILE, "open files", "ulimit -n", 1),
    errno.EAGAIN: (resource.RLIMIT_NPROC, "processes and threads", "ulimit -u", 1),
    errno.ENOMEM: (resource.RLIMIT_AS, "KiB of address space", "ulimit -v", 1024),
}
_WORDS = {
    errno.EMFILE: "too many open files",
    errno.EAGAIN: "no more threads or processes",
    errno.ENOMEM: "out of memory",
}
# A thread without memory for its stack fails with the same message as one above the limit of threads.
_NO_THREAD = pattern(r"can't start new thread|pthread_create failed")
# Signals that end a program that does not report a failed allocation.
_ENDS_WITHOUT_MEMORY = frozenset({-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS})


def limit_error(what: str, number: int | None) -> InputOutputError | None:
    """Return the error for an errno value, None if its cause is not a limit. `what` is the failed action."""
    if number not in _WORDS:
        return None
    kind, counted, command, unit = _LIMITS[number]
    most = resource.getrlimit(kind)[0]
    if most == resource.RLIM_INFINITY:
        return InputOutputError(f"{what}: {_WORDS[number]}", hint="use fewer jobs: -j1")
    hint = f"the limit is {most // unit} {counted}; raise it with '{command}', or use -j1"
    return InputOutputError(f"{what}: {_WORDS[number]}", hint=hint)


def limit_in_text(what: str, text: str) -> InputOutputError | None:
    """Return the error if the output of a failed program reports an exhausted resource, else None."""
    number = next((number for number, said in _SAID.items() if said.search(text)), None)
    if number == errno.EAGAIN and _NO_THREAD.search(text) and is_memory_limited():
        number = errno.ENOMEM
    return limit_error(what, number)


def is_memory_limited() -> bool:
    """Return whether the address space is limited."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def limit_of_program(program: str, returncode: int, stderr: str) -> InputOutputError | None:
    """Return the error for a failed program, None if a limit is not the cause."""
    if returncode == 0:
        return None
    what = f"{program} failed"
    if returncode in _ENDS_WITHOUT_MEMORY and is_memory_limited():
        return limit_error(what, errno.ENOMEM)
    return limit_in_text(what, stderr)
