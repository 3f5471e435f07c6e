"""A cache of compiled runtime objects, keyed by the states of sources, compiler and headers, and by options."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.system.processor import NATIVE_FLAG, processor_identity
from mlir_offload.driver.system.tool_watch import file_stamp, is_settled, program_stamp
from mlir_offload.driver.system.workspace import replace_bytes, user_cache
from mlir_offload.offload.runtime import runtime_include_directory
from mlir_offload.toolchain.byte_view import sha256
from mlir_offload.toolchain.process import Command, tool_failed

if TYPE_CHECKING:
    from mlir_offload.driver.step.execute import Diagnose, Executor

_CLANG_VARIABLES = ("CCC_OVERRIDE_OPTIONS", "CPATH", "C_INCLUDE_PATH")
_HEADERS = ("/usr/include", "/usr/local/include")
_MOST_FILES = 64
_DIGEST_BYTES = len(sha256().digest())


def compile_runtime_source(
    executor: Executor,
    command: Command,
    source: Path,
    output: Path,
    *,
    diagnose: Diagnose = tool_failed,
) -> None:
    """Compile a source file of the runtime, or copy the cached result of an equal command."""
    kept = None if executor.dry_run else cached_runtime(command, source, output)
    if kept is not None and take_runtime(kept, output):
        executor.note(Command(("cp", str(kept), str(output))))
        return
    executor.tool(command, output, diagnose=diagnose)
    if kept is not None:
        keep_runtime(output, kept)


def cached_runtime(command: Command, source: Path, output: Path) -> Path | None:
    """Return the path of the cached result of a command; None if clang or the sources cannot be identified.

    The name is a hash of everything that clang reads. It excludes the paths of source and output, because the
    result does not depend on them.
    """
    program, sources = program_stamp(Path(command.argv[0])), _sources_stamp()
    if not (program and sources):
        return None
    names = {str(source): source.name, str(output): ""}
    found = sha256(sources.encode())
    for word in (program, *(names.get(word, word) for word in command.argv), *_surroundings()):
        found.update(f"{len(word)} {word}\n".encode("utf-8", "surrogateescape"))
    if NATIVE_FLAG in command.argv:
        found.update(processor_identity().encode())
    return user_cache(os.environ) / "runtime" / found.hexdigest()[:32]


def _sources_stamp() -> str:
    """Return a stamp of the runtime's sources; empty if it is not reliable. Hashing them takes ten times longer."""
    with os.scandir(runtime_include_directory()) as entries:
        found = sorted((entry.name, entry.stat()) for entry in entries)
    stamps = [f"{name} {file_stamp(status)}" for name, status in found]
    return "\n".join(stamps) if is_settled(status for _, status in found) else ""


def _surroundings() -> list[str]:
    """Return the environment variables and the states of header directories that affect clang."""
    settings = [f"{name}={os.environ.get(name, '')}" for name in _CLANG_VARIABLES]
    for place in _HEADERS:
        with contextlib.suppress(OSError):
            settings.append(f"{place} {Path(place).stat().st_mtime_ns}")
    return settings


def take_runtime(kept: Path, output: Path) -> bool:
    """Copy a cached file to `output`; return whether it exists and its digest matches."""
    try:
        stored = kept.read_bytes()
    except OSError:
        return False
    content, digest = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
    if not content or sha256(content).digest() != digest:
        return False
    output.write_bytes(content)
    return True


def keep_runtime(made: Path, kept: Path) -> None:
    """Cache a file, followed by its digest. Does nothing if the cache is not writable."""
    with contextlib.suppress(OSError):
        content = made.read_bytes()
        replace_bytes(kept, content + sha256(content).digest())
        found = sorted(kept.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in found[:-_MOST_FILES]:
            path.unlink(missing_ok=True)
