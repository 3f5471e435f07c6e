"""Compare the time for reading device code, in `inspect` and in a link, with that of the vendors' tools.

The files are those of tests/foreign/wheels.yaml, downloaded by pip, and 300 generated objects. Each figure is
the processor time of whole processes, the least of several runs, and the peak memory. The commands take turns until
N turns in a row make none of them faster. The driver is installed from a wheel.
The link is compared with the call of clang that the driver makes, started without a shell. Both write to TMPDIR. If
it is in memory, the tools take less time than on a disk, and the ratio is larger.

usage: python tests/bench/reading.py [--runs N] [--llvm PREFIX] [--cache DIR]
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from foreign.source_package import default_cache  # noqa: E402
from foreign.wheel import find_member  # noqa: E402
from msgspec import Struct  # noqa: E402
from support.device_image import DeviceImage, image_kind_of  # noqa: E402
from support.installed import install  # noqa: E402
from support.link_inputs import LinkInputs, target_of  # noqa: E402

from mlir_offload.toolchain.target import Kind  # noqa: E402

OBJECTS = 300
DEVICE_IR = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "{layout}"
define ptx_kernel void @k_n{number}(ptr addrspace(1) %p) #0 {{
  store i32 {number}, ptr addrspace(1) %p
  ret void
}}
attributes #0 = {{ "target-cpu"="sm_80" }}
"""
_LAYOUT = 'target datalayout = "'
# A run that is faster by less tells nothing.
_FASTER = 0.99


class Cost(Struct, frozen=True):
    """The processor time of a command and its children in seconds, and the largest peak memory in bytes."""

    seconds: float
    peak_bytes: int


class Row(Struct, frozen=True):
    """A command of mlir-offload, and one to compare it with; `start` measures the startup of the former."""

    name: str
    ours: Sequence[str | Path]
    theirs: Sequence[str | Path]
    their_name: str
    start: Sequence[str | Path] = ()


def measure(commands: Sequence[Sequence[str | Path]], runs: int) -> list[Cost]:
    """Return the least time and the peak memory of each command; they take turns, after one warm-up run.

    A loaded machine slows down more runs of a long command than of a short one. Therefore turns go on until `runs`
    of them in a row were not faster.
    """
    found = [run_once([str(word) for word in argv]) for argv in commands]
    best = [Cost(math.inf, one.peak_bytes) for one in found]
    left = runs
    while left:
        left -= 1
        for number, argv in enumerate(commands):
            cost = run_once([str(word) for word in argv])
            if cost.seconds < _FASTER * best[number].seconds:
                left = runs
            known = best[number]
            best[number] = Cost(
                min(known.seconds, cost.seconds), max(known.peak_bytes, cost.peak_bytes)
            )
    return best


def run_once(argv: Sequence[str]) -> Cost:
    """Run a command, which must succeed."""
    child = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tempfile.gettempdir()
    )
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{shlex.join(argv)[:200]} ended with {status}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10)


def reading_rows(ours: Sequence[str], cache: Path, llvm: Path, small: Path) -> list[Row]:
    """Return the comparisons of `inspect` with tools that read a single format."""
    module, library = find_member("libnccl_device.bc", cache), find_member("libxgboost.so", cache)
    inspect = (*ours, "inspect")
    return [
        Row(
            f"inspect, bitcode of {_mebibytes(module)}",
            (*inspect, module),
            (llvm / "bin/llvm-nm", module),
            "llvm-nm",
            (*inspect, small),
        ),
        Row(
            f"inspect, library of {_mebibytes(library)}",
            (*inspect, library),
            (find_member("cuobjdump", cache), "-res-usage", library),
            "cuobjdump -res-usage",
        ),
    ]


def link_row(driver: Sequence[str], folder: Path, major: int) -> Row:
    """Return the comparison of a link with the clang command that it runs."""
    inputs = LinkInputs(major, folder)
    objects = [_object(inputs, number) for number in range(OBJECTS)]
    calls = "".join(f"void use_n{n}(void);\n" for n in range(OBJECTS))
    body = "".join(f"use_n{n}();" for n in range(OBJECTS))
    main = inputs.c_object("main", f"{calls}int main(void) {{ {body} return 0; }}\n")
    options = (f"--for-clang={major}", "-o", folder / "ours")
    ours: list[str | Path] = [*driver, main, *objects, *options]
    temps = folder / "temps"
    done = subprocess.run(
        [*map(str, ours), "-v", f"-save-temps={temps}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    (link,) = (line for line in done.stderr.splitlines() if " --offload-link " in line)
    return Row(f"link of {OBJECTS} objects", ours, shlex.split(link), "clang --offload-link")


def _object(inputs: LinkInputs, number: int) -> Path:
    """Return an object with a kernel in bitcode, as `-c` makes it."""
    text = DEVICE_IR.format(number=number, layout=_layout(inputs.major))
    argv = [f"/usr/lib/llvm-{inputs.major}/bin/llvm-as"]
    data = subprocess.run(argv, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
    image = DeviceImage(target_of(Kind.CUDA), data, image_kind_of(data))
    return inputs.host_object(f"n{number}", [Kind.CUDA], [f"k_n{number}"], [image])


def _layout(major: int) -> str:
    clang = (f"/usr/lib/llvm-{major}/bin/clang", "--target=nvptx64-nvidia-cuda", "-march=sm_80")
    flags = ("-nogpulib", "-Wno-unknown-cuda-version", "-S", "-emit-llvm", "-x", "c", os.devnull)
    done = subprocess.run([*clang, *flags, "-o", "-"], capture_output=True, text=True, check=True)
    return done.stdout.partition(_LAYOUT)[2].partition('"')[0]


def _mebibytes(path: Path) -> str:
    return f"{path.stat().st_size / (1 << 20):.1f} MiB"


def show(row: Row, runs: int) -> None:
    """Print a row of the table."""
    ours, theirs, *started = measure(
        [row.ours, row.theirs, *([row.start] if row.start else [])], runs
    )
    start = started[0].seconds if started else 0.0
    time_ratio = (ours.seconds - start) / theirs.seconds
    what = f"{row.their_name}, without start-up" if row.start else row.their_name
    memory = ours.peak_bytes / theirs.peak_bytes
    cells = (row.name, f"{ours.seconds:.2f} s", what, f"{time_ratio:.2f}", f"{memory:.2f}")
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--llvm", type=Path, default=Path("/usr/lib/llvm-22"))
    parser.add_argument("--cache", type=Path, default=default_cache() / "wheels")
    options = parser.parse_args()
    date, machine = time.strftime("%Y-%m-%d"), f"{os.cpu_count()} x {platform.machine()}"
    sys.stdout.write(f"{machine}, {date}\n\n| command | CPU | compared with | CPU | memory |\n")
    sys.stdout.write("|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory(prefix="mlir-offload-bench-") as folder:
        work = Path(folder)
        driver = (str(install(work)), "-m", "mlir_offload.driver")
        os.environ["XDG_CACHE_HOME"] = str(work / "cache")
        link = link_row(driver, work, int(options.llvm.name.rpartition("-")[2]))
        rows = [*reading_rows(driver, options.cache, options.llvm, work / "n0.o"), link]
        for row in rows:
            show(row, options.runs)


if __name__ == "__main__":
    main()
