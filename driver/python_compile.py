"""`mlir_offload.compile`: compile and load a program from Python.

The compiler runs in a separate process, started without running code of the caller in a fork, because the
caller may have threads and libraries such as torch. LLVM is never loaded into the caller's process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from mlir_offload.driver.system.workspace import user_cache
from mlir_offload.driver.tools.choose import build_environment
from mlir_offload.offload.interface.library import Library, interface_of
from mlir_offload.toolchain.errors import (
    CompatibilityError,
    InputOutputError,
    MlirOffloadError,
    SourceError,
    ToolchainError,
    ToolFailedError,
    UsageError,
    VerificationError,
)
from mlir_offload.toolchain.process import Command, Completed, ProcessRunner
from mlir_offload.translate.target_attribute import libraries_in_source

NATIVE = "native"
# The name of a source text in messages.
_TEXT_NAME = "<string>"
# libomptarget would load libLLVM into the caller's process.
_LIBRARY = ("-shared", "-fPIC", "--no-libomptarget")
_OTHER_OUTPUTS = frozenset({"-c", "-S", "-E", "-emit-llvm", "-r", "-o"})
_DIGITS = 32
_MOST_KEPT = 256  # libraries in the user's cache
_ERRORS = {
    error.exit_status: error
    for error in (
        SourceError,
        UsageError,
        ToolchainError,
        CompatibilityError,
        VerificationError,
        InputOutputError,
    )
}

Program = str | os.PathLike[str] | object
Environment = tuple[tuple[str, str], ...]


class _Request(Struct, frozen=True):
    """A program with everything that its library depends on. `path` is None for a source text."""

    text: bytes
    path: Path | None
    options: tuple[str, ...]
    environment: Environment

    @property
    def name(self) -> str:
        """Return the name of the program in messages."""
        return _TEXT_NAME if self.path is None else str(self.path)


class _Known(Struct):
    """The loaded libraries of this process. Concurrent threads compile a request once."""

    libraries: dict[_Request, Library]
    locks: dict[_Request, threading.Lock]
    lock: threading.Lock


_known = _Known({}, {}, threading.Lock())


def compile_program(
    program: Program, arch: str | Sequence[str], options: Sequence[str], *, cache: bool
) -> Library:
    """Compile and load a program; see `mlir_offload.compile`."""
    other = next((option for option in options if option in _OTHER_OUTPUTS), None)
    if other is not None:
        msg = f"compile makes a library and loads it: {other} is not supported"
        raise UsageError(msg, hint="leave the option out, or run mlir-offload")
    archs = [arch] if isinstance(arch, str) else list(arch)
    chosen = () if archs == [NATIVE] else (f"--offload-arch={','.join(archs)}",)
    text, path = _read(program)
    environment = (*build_environment(), ("PATH", os.environ.get("PATH", "")))
    request = _Request(text, path, (*_LIBRARY, *chosen, *options), environment)
    with _known.lock:
        lock = _known.locks.setdefault(request, threading.Lock())
    with lock:
        found = _known.libraries.get(request)
        if found is None or found.is_closed or not cache:
            found = _make(request, cache=cache)
            _known.libraries[request] = found
        return found


def _read(program: Program) -> tuple[bytes, Path | None]:
    """Return the source text, and the path if it is in a file.

    A one-line `str` that ends in .mlir or .mlirbc, or that names a file, is a path. Any other object is a
    source text by its `str()`.
    """
    if isinstance(program, os.PathLike) or (isinstance(program, str) and _is_path(program)):
        path = Path(program)
        try:
            return path.read_bytes(), path
        except OSError as error:
            msg = f"{path}: {error.strerror}"
            hint = "give an existing file, or the text of a module"
            raise InputOutputError(msg, hint=hint, location=str(path)) from error
    return str(program).encode(), None


def _is_path(text: str) -> bool:
    is_line = "\n" not in text and len(text) < os.pathconf("/", "PC_PATH_MAX")
    return is_line and (text.endswith((".mlir", ".mlirbc")) or os.path.isfile(text))  # noqa: PTH113


def _make(request: _Request, *, cache: bool) -> Library:
    kept = _place(request) if cache else None
    if kept is not None:
        with contextlib.suppress(StopIteration):
            return _load(next(_intact(kept)), request)
    directory = tempfile.TemporaryDirectory(prefix="mlir-offload-")
    try:
        made = _build(request, Path(directory.name))
        _check_callable(made, request)
        stored = None if kept is None else _store(made, kept)
        library = _load(made if stored is None else stored, request)
    except BaseException:
        directory.cleanup()
        raise
    if stored is None:
        _directories.append(directory)
    else:
        directory.cleanup()
    return library


def _load(file: Path, request: _Request) -> Library:
    return Library(file, interface_of(file), name=request.name)


def _check_callable(file: Path, request: _Request) -> None:
    if not interface_of(file):
        msg = f"{request.name}: no function of the program can be called"
        hint = "give a function attributes {llvm.emit_c_interface}"
        raise CompatibilityError(msg, hint=hint)


# Directories of libraries that are not cached; removed at exit.
_directories: list[tempfile.TemporaryDirectory[str]] = []


def _build(request: _Request, directory: Path) -> Path:
    source, output = request.path, directory / "library.so"
    if source is None:
        source = directory / "module.mlir"
        source.write_bytes(request.text)
    words = ("--message-format=json", *request.options, str(source), "-o", str(output))
    done = _run(words)
    messages = list(_messages(done.stderr, str(source), request.name))
    for message in messages:
        if message.get("severity") == "warning":
            warnings.warn(_line(message), stacklevel=6)
    # The caller may ignore SIGCHLD: every status is 0 then.
    if done.returncode or not output.exists():
        raise _failure(done, [one for one in messages if one.get("severity") == "error"])
    return output


def _run(words: Sequence[str]) -> Completed:
    return ProcessRunner().run(Command((*_driver(), *words)))


def _driver() -> tuple[str, ...]:
    """Return the command that starts this driver. `sys.executable` is not Python if a program embeds Python."""
    if "python" in Path(sys.executable or "").name:
        return (sys.executable, "-P", "-m", "mlir_offload.driver")
    found = shutil.which("mlir-offload")
    if found is None:
        msg = "the compiler cannot be started: this program is not python, and mlir-offload is not on PATH"
        raise ToolchainError(msg, hint="put the directory of mlir-offload on PATH")
    return (found,)


def _messages(stderr: str, source: str, shown: str) -> Iterator[dict[str, Any]]:
    for line in stderr.splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict):
            yield {
                key: value.replace(source, shown) if isinstance(value, str) else value
                for key, value in message.items()
            }


def _location(message: Mapping[str, Any]) -> str:
    parts = (message.get("file"), message.get("line"), message.get("column"))
    return ":".join(str(part) for part in parts if part)


def _line(message: Mapping[str, Any]) -> str:
    location = _location(message)
    head = f"{location}: " if location else ""
    details = message.get("details") or ()
    return "\n".join((f"{head}{message.get('message', '')}", *map(str, details)))


def _failure(done: Completed, errors: Sequence[Mapping[str, Any]]) -> MlirOffloadError:
    if not errors:
        msg = f"the compiler ended with status {done.returncode}"
        return ToolFailedError(msg, stderr=done.stderr)
    first, *others = errors
    kind, text = _ERRORS.get(done.returncode), _line(first)
    hint, location = str(first.get("hint", "")), _location(first)
    error = (
        ToolFailedError(text, hint=hint, location=location, stderr=done.stderr)
        if kind is None
        else kind(text, hint=hint, location=location)
    )
    for other in others:
        error.add_note(f"error: {_line(other)}")
    return error


def _place(request: _Request) -> Path | None:
    """Return the path of the cached library without digest and extension; None if it is not cacheable.

    `--print-cache-key` hashes everything that the output depends on besides the source.
    """
    if libraries_in_source(request.text):
        return None
    done = _run((*request.options, "--print-cache-key"))
    if done.returncode or not done.stdout:
        return None
    name = _TEXT_NAME if request.path is None else str(request.path.absolute())
    parts = (done.stdout.strip(), hashlib.sha256(request.text).hexdigest(), name)
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]
    return user_cache(os.environ) / "python" / key


def _intact(kept: Path) -> Iterator[Path]:
    """Yield the stored library if its content matches the digest in its name; remove damaged ones."""
    for file in sorted(kept.parent.glob(f"{kept.name}.*.so")):
        if file.suffixes[-2] == f".{_digest(file)}":
            os.utime(file)
            yield file
        else:
            file.unlink(missing_ok=True)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:_DIGITS]


def _store(made: Path, kept: Path) -> Path | None:
    """Store a library with one rename; return its path, None if the cache is not writable."""
    stored = kept.with_name(f"{kept.name}.{_digest(made)}.so")
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".") as beside:
            copy = Path(shutil.copyfile(made, Path(beside, "library.so")))
            copy.replace(stored)
        _prune(kept.parent)
    except OSError:
        return None
    return stored


def _prune(directory: Path) -> None:
    files = sorted(directory.glob("*.so"), key=lambda file: file.stat().st_mtime)
    for file in files[:-_MOST_KEPT]:
        file.unlink(missing_ok=True)
