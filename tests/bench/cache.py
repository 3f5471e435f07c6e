"""Time builds with ccache: cold, warm, one new architecture, and with the whole invocation wrapped.

Every ratio is of medians of runs that take turns, because the speed of a machine varies over time.

usage: python tests/bench/cache.py [--runs N] [--llvm PREFIX] [--cuda PATH]
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "docs" / "examples" / "saxpy.mlir"
ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90")
# ccache treats an input with an unknown extension as C++.
WHOLE = ("-x", "cpp-output")


@dataclass(frozen=True)
class Setting:
    """The compiler to measure, its working directory and its environment."""

    work: Path
    compiler: str
    environment: Mapping[str, str]

    def compile(self, *options: str, archs: int = len(ARCHS), front: tuple[str, ...] = ()) -> None:
        words = ("-c", f"--offload-arch={','.join(ARCHS[:archs])}", str(PROGRAM), "-o", "k.o")
        self.run(*front, self.compiler, *options, *words)

    def run(self, *words: str) -> str:
        result = subprocess.run(
            words, cwd=self.work, env=self.environment, check=True, capture_output=True, text=True
        )
        return result.stdout.strip()

    def empty(self) -> None:
        shutil.rmtree(self.environment["CCACHE_DIR"], ignore_errors=True)


def whole(setting: Setting) -> None:
    setting.compile(*WHOLE, front=("ccache",))


def cached(setting: Setting) -> None:
    setting.compile("--cache")


def all_but_one(setting: Setting) -> None:
    setting.empty()
    setting.compile("--cache", archs=len(ARCHS) - 1)


Action = Callable[[Setting], object]
# The measured action, and the action that prepares the cache before it.
MEASURED: Mapping[str, tuple[Action, Action]] = {
    "no cache": (lambda setting: setting.compile(), lambda _: None),
    "--cache, empty": (cached, Setting.empty),
    "--cache, one architecture of four new": (cached, all_but_one),
    "--cache, all there": (cached, cached),
    "ccache mlir-offload, there": (whole, whole),
    "mlir-offload --toolchain-id": (
        lambda setting: setting.run(setting.compiler, "--toolchain-id"),
        lambda _: None,
    ),
}


def measure(setting: Setting, runs: int) -> dict[str, float]:
    """Return the median wall time of each action in seconds, after one warm-up."""
    times: dict[str, list[float]] = {name: [] for name in MEASURED}
    for turn in range(runs + 1):
        for name, (action, before) in MEASURED.items():
            before(setting)
            start = time.monotonic()
            action(setting)
            if turn:
                times[name].append(time.monotonic() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def make_setting(work: Path, llvm: Path, cuda: Path) -> Setting:
    compiler = work / "mlir-offload"
    compiler.write_text(f"#!{sys.executable}\nfrom mlir_offload.driver.cli import main\n\nmain()\n")
    compiler.chmod(0o755)
    environment = {
        **os.environ,
        "MLIR_OFFLOAD_LLVM": str(llvm),
        "CUDA_PATH": str(cuda),
        "CCACHE_DIR": str(work / "cache"),
        "CCACHE_COMPILERTYPE": "other",
        "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT / ".importroot")),
    }
    # Users have compiled Python modules, so allow writing them; otherwise their compilation would be
    # measured.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    setting = Setting(work, str(compiler), environment)
    key = setting.run(
        str(compiler), "--print-cache-key", *WHOLE, f"--offload-arch={','.join(ARCHS)}"
    )
    return Setting(work, str(compiler), {**environment, "CCACHE_COMPILERCHECK": f"string:{key}"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each (default: 5)")
    parser.add_argument("--llvm", type=Path, default=Path("/usr/lib/llvm-22"))
    parser.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda-13.0"))
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="mlir-offload-bench-"))
    try:
        times = measure(make_setting(work, options.llvm, options.cuda), options.runs)
    finally:
        shutil.rmtree(work)
    heading = f"compile {PROGRAM.name} for {len(ARCHS)} architectures, median of {options.runs}"
    table = Table(title=heading)
    table.add_column("build")
    table.add_column("time", justify="right")
    table.add_column("/ no cache", justify="right")
    for name, seconds in times.items():
        table.add_row(name, f"{seconds * 1000:.0f} ms", f"{seconds / times['no cache']:.3f}")
    Console().print(table)
    Console().print(f"$ {shlex.join(sys.argv)}", highlight=False)


if __name__ == "__main__":
    main()
