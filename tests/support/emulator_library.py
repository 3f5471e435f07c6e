"""Compile the libraries of tests/gpu that replace a GPU's runtime, and cache them until their sources change."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_TOOLS = Path("/usr/lib/llvm-22/bin")
# The passes of -O1 take twice as long, and the code is not faster.
_PASSES = "function(sroa,early-cse,simplifycfg),cgscc(inline,function(sroa,early-cse,simplifycfg)),globaldce"
_FRONT_END = ("-O1", "-Xclang", "-disable-llvm-passes", "-fPIC", "-c", "-emit-llvm")
_BACK_END = ("-O1", "-fast-isel", "-relocation-model=pic", "-filetype=obj")


def emulator_library(
    sources: Path,
    name: str,
    flags: Sequence[str],
    *,
    libraries: Sequence[str] = (),
) -> Path:
    """Return the library `name`, compiled from a directory of C++ files; all test processes share it.

    The files are compiled as one unit, so that headers are read once and calls between files are inlined.
    """
    files = sorted(sources.glob("*.cpp"))
    digest = hashlib.sha256(repr((flags, libraries, _FRONT_END, _PASSES, _BACK_END)).encode())
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
    written, optimized, compiled = (source.with_suffix(end) for end in (".bc", ".opt.bc", ".o"))
    for tool, *words in (
        ("clang++", *flags, *_FRONT_END, str(source), "-o", str(written)),
        ("opt", f"-passes={_PASSES}", str(written), "-o", str(optimized)),
        ("llc", *_BACK_END, str(optimized), "-o", str(compiled)),
        (
            "clang++",
            "-shared",
            # GNU ld reads all symbols of libLLVM, which takes five times as long.
            "-fuse-ld=lld",
            f"-Wl,-soname,{made.name}",
            str(compiled),
            *libraries,
            "-o",
            str(made),
        ),
    ):
        subprocess.run([_TOOLS / tool, *words], check=True)
    return made
