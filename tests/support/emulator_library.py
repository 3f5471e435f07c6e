"""Libraries of tests/gpu that take the place of a GPU's runtime: made once, and kept until their sources change."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_CLANG = "/usr/lib/llvm-22/bin/clang++"


def emulator_library(
    sources: Path,
    name: str,
    flags: Sequence[str],
    *,
    libraries: Sequence[str] = (),
) -> Path:
    """Return the library `name` of a folder with C++; all test processes share it.

    Its files are compiled as one: headers are read once, and calls between files inlined.
    """
    files = sorted(sources.glob("*.cpp"))
    digest = hashlib.sha256(repr((flags, libraries)).encode())
    for path in (*files, *sorted(sources.glob("*.h")), *sorted(sources.parent.glob("*.h"))):
        digest.update(path.read_bytes())
    kept = _ROOT / ".pytest_cache" / "emulator"
    kept.mkdir(parents=True, exist_ok=True)
    library = kept / f"{name}-{digest.hexdigest()[:16]}" / f"{name}.so"
    with (kept / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            with tempfile.TemporaryDirectory(dir=kept) as folder:
                made = _build(_source_of(files), Path(folder), name, flags, libraries)
                for old in kept.glob(f"{name}-*"):
                    shutil.rmtree(old)
                library.parent.mkdir()
                made.rename(library)
    return library


def _source_of(files: Sequence[Path]) -> str:
    return "".join(f'#include "{path}"\n' for path in files)


def _build(
    text: str, folder: Path, name: str, flags: Sequence[str], libraries: Sequence[str]
) -> Path:
    made, source = folder / f"{name}.so", folder / f"{name}.cpp"
    source.write_text(text)
    subprocess.run(
        [_CLANG, *flags, "-shared", f"-Wl,-soname,{name}.so", str(source), *libraries, "-o", made],
        check=True,
    )
    return made
