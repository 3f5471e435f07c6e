"""Objects of the runtime, kept for the next link: the same sources, clang and kinds give the same one."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from mlir_offload.driver.system.program_stamp import program_stamp
from mlir_offload.driver.system.user_file import replace_bytes, user_cache
from mlir_offload.offload.runtime import runtime_digest
from mlir_offload.toolchain.process import Command

_CLANG_VARIABLES = ("CCC_OVERRIDE_OPTIONS", "CPATH", "C_INCLUDE_PATH")
_HEADERS = ("/usr/include", "/usr/local/include")
_MOST_FILES = 64


def cached_runtime(command: Command, source: Path, output: Path) -> Path | None:
    """Return where the object that the command makes is kept, or would be.

    None where nobody can tell whether clang is the one of last time. The name depends on all that
    clang reads; the command says where the source and the output lie, which its result does not.
    """
    program = program_stamp(Path(command.argv[0]))
    if not program:
        return None
    names = {str(source): source.name, str(output): ""}
    found = hashlib.sha256(runtime_digest().encode())
    for word in (program, *(names.get(word, word) for word in command.argv), *_surroundings()):
        found.update(f"{len(word)} {word}\n".encode("utf-8", "surrogateescape"))
    return user_cache(os.environ) / "runtime" / f"{found.hexdigest()[:32]}.o"


def _surroundings() -> list[str]:
    """Return the settings and the headers of the system that clang reads."""
    settings = [f"{name}={os.environ.get(name, '')}" for name in _CLANG_VARIABLES]
    for place in _HEADERS:
        with contextlib.suppress(OSError):
            settings.append(f"{place} {Path(place).stat().st_mtime_ns}")
    return settings


def take_runtime(kept: Path, output: Path) -> bool:
    """Copy an object that was kept; say whether there was one."""
    try:
        content = kept.read_bytes()
    except OSError:
        return False
    output.write_bytes(content)
    return True


def keep_runtime(made: Path, kept: Path) -> None:
    """Keep an object. A directory that cannot be written keeps nothing."""
    with contextlib.suppress(OSError):
        replace_bytes(kept, made.read_bytes())
        found = sorted(kept.parent.glob("*.o"), key=lambda path: path.stat().st_mtime_ns)
        for path in found[:-_MOST_FILES]:
            path.unlink(missing_ok=True)
