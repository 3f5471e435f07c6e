"""Time the compatibility check of inputs in a compilation or a link.

Each figure is the processor time of one check, the median of many in one process; the first check loads the
tables.

usage: python tests/bench/guard.py [--runs N] [--llvm PREFIX]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mlir_offload.offload.link.objects import read_objects
from mlir_offload.offload.skew.check import check_file, check_objects
from mlir_offload.toolchain.skew.fact import Consumer

KERNEL = """
#define __global__ __attribute__((global))
__global__ void __attribute__((launch_bounds(128))) axpy(float a, const float *x, float *y, int n) {
  for (int i = 0; i < n; i++) y[i] += a * x[i];
}
"""
PIECES = (1, 50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--llvm", type=Path, default=Path("/usr/lib/llvm-22"))
    arguments = parser.parse_args()
    table = Table(title="the guard, ms")
    for heading in ("input", "size", "first", "same release", "older release"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        for path in make_inputs(arguments.llvm / "bin", Path(folder)):
            table.add_row(*row(path, arguments.runs))
    Console().print(table)


def make_inputs(tools: Path, folder: Path) -> list[Path]:
    """Return bitcode and text of kernels, few and many, and an object that embeds the bitcode."""
    made = []
    options = [
        "-x",
        "cuda",
        "--cuda-device-only",
        "--cuda-gpu-arch=sm_80",
        "-nocudalib",
        "-nocudainc",
    ]
    for count in PIECES:
        source = KERNEL + "".join(
            f"__global__ void k{n}(float *p) {{ p[{n}] *= 2; }}\n" for n in range(count)
        )
        code = folder / f"kernels{count}.cu"
        code.write_text(source)
        for ending, form in ((".bc", ["-c"]), (".ll", ["-S"])):
            output = code.with_suffix(ending)
            command = [
                tools / "clang",
                *options,
                "-w",
                "-O2",
                "-emit-llvm",
                *form,
                code,
                "-o",
                output,
            ]
            run(command)
            made.append(output)
        image = f"file={code.with_suffix('.bc')},triple=nvptx64-nvidia-cuda,arch=sm_80,kind=cuda"
        binary, embedded = folder / "images", code.with_suffix(".o")
        run([tools / "clang-offload-packager", f"--image={image}", "-o", binary])
        assembly = f'.section .llvm.offloading,"e"\n.incbin "{binary}"\n'
        run([tools / "clang", "-x", "assembler", "-c", "-", "-o", embedded], assembly)
        made.append(embedded)
    return made


def run(command: list[object], text: str = "") -> None:
    argv = [str(word) for word in command]
    subprocess.run(argv, input=text.encode(), check=True, capture_output=True)


def row(path: Path, runs: int) -> tuple[str, ...]:
    """Return the first time and the medians, for the release that wrote the file and an older one."""
    is_object = path.suffix == ".o"
    objects = read_objects(path) if is_object else ()

    def check(release: int) -> Callable[[], object]:
        consumer = Consumer(release)
        if is_object:
            return lambda: check_objects(objects, consumer)
        return lambda: check_file(path, consumer)

    first = timed(check(22), 1)
    times = (timed(check(release), runs) for release in (22, 16))
    return (path.name, f"{path.stat().st_size}", *(f"{value:.1f}" for value in (first, *times)))


def timed(action: Callable[[], object], runs: int) -> float:
    """Return the median processor time in milliseconds."""
    taken = []
    for _ in range(runs):
        begin = time.process_time()
        action()
        taken.append(1000 * (time.process_time() - begin))
    return statistics.median(taken)


if __name__ == "__main__":
    main()
