"""Time whole builds: mlir-offload beside the same pipeline typed by hand, and beside nvcc.

Every figure is a ratio of medians measured in turn in one run, because the speed of a machine drifts.

usage: python tests/bench/driver.py [--runs N] [--llvm PREFIX] [--cuda PATH]
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PROGRAMS = ("saxpy", "matmul")
ARCHS = ("sm_90", "sm_80", "sm_86", "sm_89")
COUNTS = (1, 2, 4)
# What MLIR's own documentation types for a program with gpu.launch, one target for each arch.
PIPELINE = (
    "gpu-kernel-outlining,{targets},convert-vector-to-scf,lower-affine,arith-expand,"
    "convert-scf-to-cf,expand-strided-metadata,lower-affine,"
    "gpu.module(convert-gpu-to-nvvm,canonicalize,cse,reconcile-unrealized-casts),"
    "func.func(gpu-async-region),gpu-to-llvm,convert-math-to-llvm,convert-math-to-libm,"
    "finalize-memref-to-llvm,convert-func-to-llvm,convert-arith-to-llvm,convert-cf-to-llvm,"
    "convert-index-to-llvm,canonicalize,cse,reconcile-unrealized-casts,"
    "gpu-module-to-binary{{format=fatbin toolkit={cuda}}}"
)


@dataclass(frozen=True)
class Setting:
    """Where the tools are and where to work."""

    llvm: Path
    cuda: Path
    work: Path


Build = Callable[[Setting, str, Sequence[str]], None]


def run(*argv: str | Path) -> None:
    subprocess.run([str(word) for word in argv], check=True, capture_output=True)


def build_by_driver(setting: Setting, program: str, archs: Sequence[str]) -> None:
    installed = Path(sys.executable).with_name("mlir-offload")
    command = (
        [str(installed)] if installed.exists() else [sys.executable, "-m", "mlir_offload.driver"]
    )
    options = [
        f"--llvm={setting.llvm}",
        f"--cuda-path={setting.cuda}",
        f"--offload-arch={','.join(archs)}",
    ]
    run(*command, *options, EXAMPLES / f"{program}.mlir", "-o", setting.work / f"{program}.driver")


def build_by_hand(setting: Setting, program: str, archs: Sequence[str]) -> None:
    """The runtime is compiled once beforehand, as MLIR's own runtime library would be."""
    tools, work = setting.llvm / "bin", setting.work
    targets = ",".join(f"nvvm-attach-target{{chip={arch} O=2}}" for arch in archs)
    pipeline = f"builtin.module({PIPELINE.format(targets=targets, cuda=setting.cuda)})"
    low, ir, host = (work / f"{program}.hand.{end}" for end in ("mlir", "ll", "o"))
    run(tools / "mlir-opt", EXAMPLES / f"{program}.mlir", f"--pass-pipeline={pipeline}", "-o", low)
    run(tools / "mlir-translate", "--mlir-to-llvmir", low, "-o", ir)
    run(tools / "clang", "-O2", "-c", "-Wno-override-module", ir, "-o", host)
    # The functions of MLIR's runtime stay open: Debian's MLIR ships no library that has them.
    run(
        tools / "clang", "-fuse-ld=lld", host, setting.cuda / "lib64" / "libcudart_static.a",
        "-Wl,--unresolved-symbols=ignore-all", "-lm", "-ldl", "-lrt", "-lpthread",
        "-o", work / f"{program}.hand",
    )  # fmt: skip


def build_by_nvcc(setting: Setting, program: str, archs: Sequence[str]) -> None:
    codes = [f"-gencode=arch=compute_{arch.removeprefix('sm_')},code={arch}" for arch in archs]
    run(
        setting.cuda / "bin" / "nvcc", "-O2", *codes, EXAMPLES / f"{program}.cu",
        "-o", setting.work / f"{program}.nvcc",
    )  # fmt: skip


BUILDS: dict[str, Build] = {
    "mlir-offload": build_by_driver,
    "by hand": build_by_hand,
    "nvcc": build_by_nvcc,
}


def measure(setting: Setting, program: str, archs: Sequence[str], runs: int) -> dict[str, float]:
    """Return the median wall time in seconds of each build, run in turn after one warm-up."""
    times: dict[str, list[float]] = {name: [] for name in BUILDS}
    for turn in range(runs + 1):
        for name, build in BUILDS.items():
            start = time.monotonic()
            build(setting, program, archs)
            if turn:
                times[name].append(time.monotonic() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def stages(setting: Setting, program: str) -> str:
    """Return the driver's own report of the time of each step."""
    command = [
        sys.executable, "-m", "mlir_offload.driver", "-ftime-report", f"--llvm={setting.llvm}",
        f"--cuda-path={setting.cuda}", "--offload-arch=sm_90", str(EXAMPLES / f"{program}.mlir"),
        "-o", str(setting.work / "staged"),
    ]  # fmt: skip
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return f"$ {shlex.join(command[2:6])} ...\n{result.stderr}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--runs", type=int, default=5, help="counted runs of each build (default: 5)"
    )
    parser.add_argument("--llvm", type=Path, default=Path("/usr/lib/llvm-22"))
    parser.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda-13.0"))
    options = parser.parse_args()
    # Users have compiled modules; a shell that forbids writing them would be measured instead.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPATH", str(EXAMPLES.parents[1] / ".importroot"))
    work = Path(tempfile.mkdtemp(prefix="mlir-offload-bench-"))
    setting = Setting(options.llvm, options.cuda, work)
    table = Table(title=f"wall time of a build, median of {options.runs}")
    for heading in ("program", "archs", "mlir-offload", "by hand", "nvcc", "/ by hand", "nvcc /"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    try:
        for program in PROGRAMS:
            for count in COUNTS:
                times = measure(setting, program, ARCHS[:count], options.runs)
                own, hand, nvcc = times.values()
                seconds = (f"{value:.2f} s" for value in (own, hand, nvcc))
                table.add_row(
                    program, str(count), *seconds, f"{own / hand:.2f}", f"{nvcc / own:.1f}"
                )
        console = Console()
        console.print(table)
        for program in PROGRAMS:
            console.print(stages(setting, program), markup=False, highlight=False)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
