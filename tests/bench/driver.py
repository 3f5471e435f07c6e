"""Compare builds by mlir-offload with the same pipeline run manually, and with nvcc: processor and wall time.

Builds take turns, and every figure is a ratio of the least of several runs, because the speed of a machine
varies and others may use it. If strace is installed, the programs that a build starts are counted.

usage: python tests/bench/driver.py [--runs N] [--cores N] [--llvm PREFIX] [--cuda PATH]
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.installed import ROOT, install

EXAMPLES = ROOT / "docs" / "examples"
PROGRAMS = ("saxpy", "matmul")
ARCHS = ("sm_90", "sm_80", "sm_86", "sm_89")
COUNTS = (1, 4)
# The pipeline in MLIR's documentation for a program with gpu.launch, one target per architecture.
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
    """The tools and the working directory."""

    llvm: Path
    cuda: Path
    work: Path


@dataclass(frozen=True)
class Job:
    """A build: a program, linked or not, for some architectures."""

    program: str
    is_linked: bool
    archs: Sequence[str]

    @property
    def title(self) -> str:
        form = "compile and link" if self.is_linked else "-c"
        return f"{self.program}, {form}, {len(self.archs)}"


Commands = Iterator[tuple[str | Path, ...]]


def by_driver(setting: Setting, job: Job) -> Commands:
    options = [
        f"--llvm={setting.llvm}",
        f"--cuda-path={setting.cuda}",
        f"--offload-arch={','.join(job.archs)}",
    ]
    form = () if job.is_linked else ("-c",)
    source, output = EXAMPLES / f"{job.program}.mlir", setting.work / f"{job.program}.driver"
    yield (setting.work / "mlir-offload", *options, *form, source, "-o", output)


def by_hand(setting: Setting, job: Job) -> Commands:
    """Yield the commands of a manual build; the runtime is compiled beforehand, like MLIR's runtime library."""
    tools, work = setting.llvm / "bin", setting.work
    targets = ",".join(f"nvvm-attach-target{{chip={arch} O=2}}" for arch in job.archs)
    pipeline = f"builtin.module({PIPELINE.format(targets=targets, cuda=setting.cuda)})"
    low, ir, host = (work / f"{job.program}.hand.{end}" for end in ("mlir", "ll", "o"))
    source = EXAMPLES / f"{job.program}.mlir"
    yield tools / "mlir-opt", source, f"--pass-pipeline={pipeline}", "-o", low
    yield tools / "mlir-translate", "--mlir-to-llvmir", low, "-o", ir
    yield tools / "clang", "-O2", "-c", "-Wno-override-module", ir, "-o", host
    if job.is_linked:
        # The functions of MLIR's runtime stay undefined, because Debian's MLIR has no library that defines
        # them.
        yield (
            tools / "clang", "-fuse-ld=lld", host, setting.cuda / "lib64" / "libcudart_static.a",
            "-Wl,--unresolved-symbols=ignore-all", "-lm", "-ldl", "-lrt", "-lpthread",
            "-o", work / f"{job.program}.hand",
        )  # fmt: skip


def by_nvcc(setting: Setting, job: Job) -> Commands:
    numbers = [arch.removeprefix("sm_") for arch in job.archs]
    codes = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers]
    form = () if job.is_linked else ("-c",)
    source, output = EXAMPLES / f"{job.program}.cu", setting.work / f"{job.program}.nvcc"
    yield (setting.cuda / "bin" / "nvcc", "-O2", *codes, *form, source, "-o", output)


Build = Callable[[Setting, Job], Commands]
BUILDS: dict[str, Build] = {"mlir-offload": by_driver, "by hand": by_hand, "nvcc": by_nvcc}


@dataclass(frozen=True)
class Cost:
    """The processor time of all programs and the wall time, in seconds."""

    busy: float
    wall: float


def build(commands: Commands, work: Path) -> Cost:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    for command in commands:
        subprocess.run([str(word) for word in command], check=True, capture_output=True, cwd=work)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - start
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(busy, wall)


def measure(setting: Setting, job: Job, runs: int) -> list[Cost]:
    """Return the least time of each build; the builds take turns after one warm-up."""
    costs: list[list[Cost]] = [[] for _ in BUILDS]
    for turn in range(runs + 1):
        for found, commands in zip(costs, BUILDS.values(), strict=True):
            cost = build(commands(setting, job), setting.work)
            if turn:
                found.append(cost)
    return [
        Cost(min(cost.busy for cost in found), min(cost.wall for cost in found)) for found in costs
    ]


def programs(setting: Setting, job: Job) -> str:
    """Return how many programs the driver starts; `-` without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return "-"
    log = setting.work / "strace"
    (command,) = by_driver(setting, job)
    call = [strace, "-f", "-e", "trace=execve", "-o", log, *command]
    subprocess.run([str(word) for word in call], check=True, capture_output=True, cwd=setting.work)
    return str(sum(line.endswith(" = 0") for line in log.read_text().splitlines()) - 1)


def stages(setting: Setting, program: str) -> str:
    """Return the driver's report of the time of each step."""
    command = [
        str(setting.work / "mlir-offload"), "-ftime-report", f"--llvm={setting.llvm}",
        f"--cuda-path={setting.cuda}", "--offload-arch=sm_90", str(EXAMPLES / f"{program}.mlir"),
        "-o", str(setting.work / "staged"),
    ]  # fmt: skip
    result = subprocess.run(command, check=True, capture_output=True, text=True, cwd=setting.work)
    return f"$ mlir-offload {shlex.join(command[1:5])} ...\n{result.stderr}"


def row(setting: Setting, job: Job, runs: int) -> Iterator[str]:
    own, hand, nvcc = measure(setting, job, runs)
    yield job.title
    yield f"{1000 * own.busy:.0f} ms"
    for one, other in ((own, hand), (nvcc, own)):
        yield f"{one.busy / other.busy:.2f}"
        yield f"{one.wall / other.wall:.2f}"
    yield programs(setting, job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--runs", type=int, default=5, help="counted runs of each build (default: 5)"
    )
    parser.add_argument("--cores", type=int, help="how many processors to use (default: all)")
    parser.add_argument("--llvm", type=Path, default=Path("/usr/lib/llvm-22"))
    parser.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda-13.0"))
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    work = Path(tempfile.mkdtemp(prefix="mlir-offload-bench-"))
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    setting = Setting(options.llvm, options.cuda, work)
    table = Table(title=f"builds, the least of {options.runs}")
    headings = ("processor", "/ by hand", "wall", "nvcc / it", "wall", "programs")
    table.add_column("build, architectures")
    for heading in headings:
        table.add_column(heading, justify="right")
    try:
        program = work / "mlir-offload"
        program.write_text(f"#!{install(work)}\nfrom mlir_offload.__main__ import main\nmain()\n")
        program.chmod(0o755)
        for name in PROGRAMS:
            for is_linked in (False, True):
                for count in COUNTS:
                    job = Job(name, is_linked, ARCHS[:count])
                    table.add_row(*row(setting, job, options.runs))
        console = Console()
        console.print(table)
        for name in PROGRAMS:
            console.print(stages(setting, name), markup=False, highlight=False)
        console.print(f"$ {shlex.join(sys.argv)}", highlight=False)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
