"""Libraries of tests/gpu that take the place of a GPU's runtime: made once, and kept until their sources change."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_CLANG = "/usr/lib/llvm-22/bin/clang++"


def emulator_library(
    sources: Path,
    name: str,
    flags: Sequence[str],
    *,
    libraries: Sequence[str] = (),
    alone: Sequence[str] = (),
) -> Path:
    """Return the library `name` of a folder with C++; all test processes share it.

    Its files are compiled as one, but those that stand `alone`: headers are read once, calls between files inlined.
    """
    files = sorted(sources.glob("*.cpp"))
    digest = hashlib.sha256(repr((flags, libraries, alone)).encode())
    for path in (*files, *sorted(sources.glob("*.h")), *sorted(sources.parent.glob("*.h"))):
        digest.update(path.read_bytes())
    kept = _ROOT / ".pytest_cache" / "emulator"
    kept.mkdir(parents=True, exist_ok=True)
    library = kept / f"{name}-{digest.hexdigest()[:16]}" / f"{name}.so"
    with (kept / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            with tempfile.TemporaryDirectory(dir=kept) as folder:
                units = [[path] for path in files if path.stem in alone]
                units.append([path for path in files if path.stem not in alone])
                made = _build(units, Path(folder), name, flags, libraries)
                for old in kept.glob(f"{name}-*"):
                    shutil.rmtree(old)
                library.parent.mkdir()
                made.rename(library)
    return library


def _build(
    units: Sequence[Sequence[Path]],
    folder: Path,
    name: str,
    flags: Sequence[str],
    libraries: Sequence[str],
) -> Path:
    made = folder / f"{name}.so"
    objects = [folder / f"{number}.o" for number in range(len(units))]
    commands = []
    for unit, output in zip(units, objects, strict=True):
        source = output.with_suffix(".cpp")
        source.write_text("".join(f'#include "{path}"\n' for path in unit))
        commands.append([*flags, "-c", str(source), "-o", str(output)])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_compile, commands))
    soname = f"-Wl,-soname,{name}.so"
    _compile(["-shared", soname, *map(str, objects), *libraries, "-o", str(made)])
    return made


def _compile(arguments: Sequence[str]) -> None:
    subprocess.run([_CLANG, *arguments], check=True)
