"""A CUDA toolkit whose runtime library runs PTX on this machine, without a GPU.

The library is made of tests/gpu/cuda once for all test processes, and kept until its sources change.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mlir_offload.driver.compile.choose import choose_toolkit, places_for
from mlir_offload.toolchain.process import ProcessRunner

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "gpu" / "cuda"
# The interpreter computes in the formats and directions that PTX names, so the compiler keeps all of them.
FLAGS = ("-std=c++20", "-O1", "-fPIC", "-frounding-math", "-ffp-contract=off")
CLANG = "/usr/lib/llvm-22/bin/clang++"
# What the interpreter exits with when a kernel does something that PTX does not define.
FAULT = 97


@dataclass(frozen=True, slots=True)
class CudaEmulator:
    """Two folders for `--cuda-path`: with NVIDIA's tools, and with tools that keep the PTX of each cubin."""

    plain: Path
    keeping: Path

    def options(self, *, is_kept: bool) -> tuple[str, ...]:
        """Return the options for a program that keeps PTX for later GPUs, or for the usual one."""
        if is_kept:
            return f"--cuda-path={self.plain}", "-fno-gpu-rdc", "--cuda-include-ptx=all"
        return (f"--cuda-path={self.keeping}",)


def run_program(
    program: Path,
    *arguments: str,
    seed: int = 0,
    output: Path | None = None,
    device: str = "cuda",
) -> subprocess.CompletedProcess[str]:
    """Run a program; its output, which need not be text, may go to a file.

    The order of threads, poison and what PTX leaves open go by the seed; 0 is in order.
    """
    variables = {**os.environ, "PTX_SEED": str(seed), "MLIR_OFFLOAD_DEVICE": device}
    argv = [str(program), *arguments]
    if output is None:
        return subprocess.run(argv, env=variables, capture_output=True, text=True, check=False)
    with output.open("wb") as file:
        return subprocess.run(
            argv, env=variables, stdout=file, stderr=subprocess.PIPE, text=True, check=False
        )


def cuda_emulator(directory: Path) -> CudaEmulator:
    """Set up the folders in a directory."""
    library = emulator_library()
    toolkit = choose_toolkit(places_for(), ProcessRunner()).root
    plain, keeping = directory / "plain", directory / "keeping"
    for root in (plain, keeping):
        (root / "lib64").mkdir(parents=True)
        (root / "lib64" / "libcudart.so").symlink_to(library)
        for name in ("nvvm", "include"):
            (root / name).symlink_to(toolkit / name)
    (plain / "bin").symlink_to(toolkit / "bin")
    (keeping / "bin").mkdir()
    store = keeping / "store"
    store.mkdir()
    for tool in (SOURCES / "bin").iterdir():
        text = tool.read_text().replace("@REAL@", str(toolkit / "bin"))
        made = keeping / "bin" / tool.name
        made.write_text(text.replace("@STORE@", str(store)))
        made.chmod(0o755)
    return CudaEmulator(plain, keeping)


def emulator_library() -> Path:
    """Return the library that takes the place of libcudart."""
    sources = sorted(SOURCES.glob("*.cpp"))
    digest = hashlib.sha256(repr(FLAGS).encode())
    for path in (*sources, *sorted(SOURCES.glob("*.h"))):
        digest.update(path.read_bytes())
    kept = ROOT / ".pytest_cache" / "emulator"
    kept.mkdir(parents=True, exist_ok=True)
    library = kept / f"libcudart-{digest.hexdigest()[:16]}.so"
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _build(sources, library)
    return library


def _build(sources: list[Path], library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        objects = [Path(folder, f"{source.stem}.o") for source in sources]
        # What all of them include is compiled once.
        header, compiled = SOURCES / "cudart.h", Path(folder, "cudart.pch")
        _compile([CLANG, *FLAGS, "-x", "c++-header", str(header), "-o", str(compiled)])
        flags = (*FLAGS, "-include-pch", str(compiled))
        commands = [
            [CLANG, *flags, "-c", str(source), "-o", str(made)]
            for source, made in zip(sources, objects, strict=True)
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_compile, commands))
        made = Path(folder, "libcudart.so")
        _compile(
            [CLANG, "-shared", "-Wl,-soname,libcudart.so", *map(str, objects), "-o", str(made)]
        )
        for old in library.parent.glob("libcudart-*.so"):
            old.unlink()
        shutil.move(made, library)


def _compile(command: list[str]) -> None:
    subprocess.run(command, check=True)
