"""Time the packaging of large device images with mlir-offload, cat and clang-offload-packager.

The memory of a program includes that of this script when it started the program, which is the least value
shown. Every figure is a ratio of medians of runs that take turns, because the speed of a machine varies over
time.

usage: python tests/bench/package.py [--runs N] [--size-mb N] [--llvm PREFIX] [--directory DIR]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
FILES = 4
MEGABYTE = 1 << 20
KEYS = "triple=nvptx64-nvidia-cuda,arch=sm_90,kind=cuda"


@dataclass(frozen=True)
class Run:
    """The wall time of a program in seconds, and its peak memory in bytes."""

    seconds: float
    peak_bytes: int


def make_images(directory: Path, size_bytes: int) -> list[Path]:
    """Write incompressible files with the magic of bitcode."""
    paths = []
    for number in range(FILES):
        path = directory / f"{number}.bc"
        with path.open("wb") as file:
            file.write(b"BC\xc0\xde")
            for _ in range(size_bytes // FILES // MEGABYTE):
                file.write(os.urandom(MEGABYTE))
        paths.append(path)
    return paths


def timed(argv: list[str], output: Path) -> Run:
    output.unlink(missing_ok=True)
    with output.with_suffix(".cat").open("wb") as stdout:
        begin = time.monotonic()
        process = subprocess.Popen(argv, stdout=stdout, cwd=output.parent)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv)
    return Run(seconds, usage.ru_maxrss * 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each (default: 5)")
    parser.add_argument("--size-mb", type=int, default=1024, help="of all images (default: 1024)")
    parser.add_argument("--llvm", type=Path, default=Path("/usr/lib/llvm-22"))
    parser.add_argument("--directory", type=Path, help="where to write (default: TMPDIR)")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPATH", str(ROOT / ".importroot"))
    work = Path(tempfile.mkdtemp(prefix="mlir-offload-bench-", dir=options.directory)).resolve()
    try:
        images = make_images(work, options.size_mb * MEGABYTE)
        output = work / "out"
        arguments = [*(f"--image=file={path},{KEYS}" for path in images), "-o", str(output)]
        commands = {
            "mlir-offload package": [
                sys.executable, "-m", "mlir_offload.driver", "package", "--for-clang=22", *arguments,
            ],
            "cat a b c d > out": ["cat", *map(str, images)],
            "llvm-offload-binary": [str(options.llvm / "bin" / "llvm-offload-binary"), *arguments],
        }  # fmt: skip
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        for turn in range(options.runs + 1):
            for name, argv in commands.items():
                run = timed(argv, output)
                if turn:
                    runs[name].append(run)
        show(runs, options.size_mb)
    finally:
        shutil.rmtree(work)


def show(runs: dict[str, list[Run]], size_mb: int) -> None:
    table = Table(title=f"packaging {size_mb} MB in {FILES} images, medians")
    for heading in ("program", "seconds", "MB/s", "mlir-offload /", "peak memory"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    own = statistics.median(run.seconds for run in next(iter(runs.values())))
    for name, done in runs.items():
        seconds = statistics.median(run.seconds for run in done)
        peak = max(run.peak_bytes for run in done) / MEGABYTE
        table.add_row(
            name,
            f"{seconds:.2f}",
            f"{size_mb / seconds:.0f}",
            f"{own / seconds:.2f}",
            f"{peak:.0f} MB",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
