"""Measure how the cost of a compilation grows with a program: its kernels, their lines, their barriers.

For three sizes of each: the processor time of the driver, that of the tools, and the size of the LLVM IR of
the kernels for clang. The exponent is the slope of a line through their logarithms, after subtracting the
cost of the smallest program. The exit status is 1 if an exponent of the driver exceeds the limit.

With --count, the driver's cost is the instruction count of valgrind, in units of 10^9, which does not vary
with the load of the machine.

usage: python tests/bench/scale.py [--arch ARCH] [--small] [--count]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

PATH = os.environ.get("PYTHONPATH", str(Path(__file__).resolve().parents[2] / ".importroot"))
BAR = 1.15
MOST_RUNS, ENOUGH_S = 3, 12
SHARED = "memref<64xf32, #gpu.address_space<workgroup>>"
MEMORY = "memref<?xf32>"
COUNTER = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")
# Run the driver unmodified; at its end, write its own processor time and that of its tools.
OBSERVED = """\
import json, os, resource
from mlir_offload.driver.cli import main
leave = os._exit
def noting_end(status):
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    with open(os.environ["OBSERVED"], "w") as file:
        json.dump([one.ru_utime + one.ru_stime for one in used], file)
    leave(status)
os._exit = noting_end
main()
"""


@dataclass(frozen=True)
class Cost:
    """The cost of a compilation: seconds of the driver and of its tools, and bytes of LLVM IR."""

    own_s: float
    tools_s: float
    ir_bytes: int


def _program(kernels: Sequence[str], parameters: int = 1) -> str:
    taken = "".join(f", %v{n} : f32" for n in range(parameters))
    given = "".join(f", %v{n}: f32" for n in range(parameters))
    bodies = "".join(
        f"gpu.func @k{number}(%m: {MEMORY}{given}) workgroup(%w : {SHARED}) kernel {{\n"
        f"%i = gpu.thread_id x\n{body}\ngpu.return\n}}\n"
        for number, body in enumerate(kernels)
    )
    launches = "".join(
        f"gpu.launch_func @kernels::@k{number} blocks in (%n, %c1, %c1) threads in (%c64, %c1, %c1)"
        f" args(%m : {MEMORY}{taken})\n"
        for number in range(len(kernels))
    )
    return (
        f"module attributes {{gpu.container_module}} {{\ngpu.module @kernels {{\n{bodies}}}\n"
        f"func.func @run(%n: index, %m: {MEMORY}{given}) {{\n%c1 = arith.constant 1 : index\n"
        f"%c64 = arith.constant 64 : index\n{launches}return\n}}\n}}\n"
    )


def _lines(count: int, value: str = "%v0") -> str:
    return "\n".join(
        f"%x{n} = memref.load %m[%i] : {MEMORY}\n%y{n} = arith.addf %x{n}, {value} : f32\n"
        f"memref.store %y{n}, %m[%i] : {MEMORY}"
        for n in range(max(1, count // 3))
    )


def _barriers(count: int) -> str:
    """Return code in which a value from each part is used after all barriers."""
    parts = "\n".join(
        f"%x{n} = memref.load %m[%i] : {MEMORY}\nmemref.store %x{n}, %w[%i] : {SHARED}\n"
        f"gpu.barrier\n%y{n} = memref.load %w[%i] : {SHARED}"
        for n in range(count)
    )
    sums = "\n".join(f"%s{n + 1} = arith.addf %s{n}, %y{n} : f32" for n in range(count))
    first = "%zero = arith.constant 0.0 : f32\n%s0 = arith.addf %zero, %v0 : f32"
    return f"{parts}\n{first}\n{sums}\nmemref.store %s{count}, %m[%i] : {MEMORY}"


def _arguments(count: int) -> str:
    sums = "\n".join(
        f"%t{n + 1} = arith.addf {'%v0' if n == 0 else f'%t{n}'}, %v{n} : f32" for n in range(count)
    )
    return _program([f"{sums}\nmemref.store %t{count}, %m[%i] : {MEMORY}"], count)


KINDS: Mapping[str, tuple[Callable[[int], str], tuple[int, int, int]]] = {
    "kernels": (lambda count: _program([_lines(3)] * count), (125, 500, 2000)),
    "lines": (lambda count: _program([_lines(count)]), (3000, 6000, 12500)),
    "barriers": (lambda count: _program([_barriers(count)]), (40, 80, 160)),
    "arguments": (_arguments, (50, 100, 200)),
}


def main() -> int:
    """Measure and print; return whether an exponent exceeds the limit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="host")
    parser.add_argument("--small", action="store_true", help="a quarter of each size")
    parser.add_argument("--count", action="store_true", help="instructions of our own, not seconds")
    given = parser.parse_args()
    own = "own 10^9" if given.count else "own s"
    table = Table("", "size", own, "tools s", "IR KiB")
    is_above = False
    for kind, (make, sizes) in KINDS.items():
        least = least_cost(make(1), given.arch, is_counted=given.count)
        chosen = [size // 4 if given.small else size for size in sizes]
        costs = [least_cost(make(size), given.arch, is_counted=given.count) for size in chosen]
        for size, cost in zip(chosen, costs, strict=True):
            texts = (f"{cost.own_s:.2f}", f"{cost.tools_s:.2f}", str(cost.ir_bytes >> 10))
            table.add_row(kind, str(size), *texts)
        fits = [
            exponent(chosen, [cost.own_s - least.own_s for cost in costs]),
            exponent(chosen, [cost.tools_s - least.tools_s for cost in costs]),
            exponent(chosen, [cost.ir_bytes - least.ir_bytes for cost in costs]),
        ]
        table.add_row(kind, "exponent", *(f"{fit:.2f}" for fit in fits), end_section=True)
        is_above = is_above or max(fits[0], fits[2]) > BAR
    Console().print(table)
    return int(is_above)


def least_cost(program: str, arch: str, *, is_counted: bool) -> Cost:
    """Return the least cost of several compilations; the number of runs is limited by time."""
    if is_counted:
        return measure(program, arch, is_counted=True)
    costs: list[Cost] = []
    while len(costs) < MOST_RUNS and sum(cost.own_s + cost.tools_s for cost in costs) < ENOUGH_S:
        costs.append(measure(program, arch, is_counted=False))
    return Cost(
        min(cost.own_s for cost in costs),
        min(cost.tools_s for cost in costs),
        costs[0].ir_bytes,
    )


def measure(program: str, arch: str, *, is_counted: bool) -> Cost:
    """Compile a program to an object."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "k.mlir").write_text(program)
        words = ("-c", f"--offload-arch={arch}", "-j1", "-save-temps=t", "k.mlir", "-o", "k.o")
        environment = {**os.environ, "OBSERVED": str(folder / "observed"), "PYTHONPATH": PATH}
        command = [*(COUNTER if is_counted else ()), sys.executable, "-c", OBSERVED, *words]
        done = subprocess.run(
            command, cwd=folder, env=environment, check=True, capture_output=True, text=True
        )
        own_s, tools_s = json.loads((folder / "observed").read_text())
        if counted := COUNTED.search(done.stderr) if is_counted else None:
            own_s = int(counted[1].replace(",", "")) / 1e9
        text = (
            folder / "t" / "0" / "split" / ("device0.host.ll" if arch == "host" else "device0.ll")
        )
        return Cost(own_s, tools_s, text.stat().st_size)


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the slope of the regression line through the logarithms."""
    xs = [math.log(size) for size in sizes]
    # Values that are too small to measure count as constant.
    ys = [math.log(max(value, 1e-3)) for value in values]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - x_mean) ** 2 for x in xs)


if __name__ == "__main__":
    sys.exit(main())
