"""Compare the instruction counts of GPU kernels with those that clang and nvcc generate from C++.

For each loop, by mlir-offload, clang and nvcc: instructions per element; of these fused multiply-adds, loads
wider than 32 bits and operations on 64-bit indices; registers, parameters and instructions of the kernel. A
row is red if the loop has more instructions than that of clang, or exceeds that of nvcc by more than two
instructions and more than a tenth.

usage: python tests/bench/gpu_code.py [--arch NAME]... [--contraction fast|on|off] [--bits 64|32] [--markdown]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.table import Table
from support.gpu_code import Code
from support.gpu_comparison import LOOPS, Case, Loop, Tools, nvdisasm

from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.offload.device.kernel import DeviceKernel
from mlir_offload.toolchain.llvm import choose_llvm, llvm_probe
from mlir_offload.toolchain.process import ProcessRunner
from mlir_offload.toolchain.search import find_llvm

COLUMNS = (
    *("arch", "loop", "instructions", "fused", "wide loads", "64-bit", "registers", "parameters"),
    "kernel",
)
ARCHS = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx1100")
# An instruction count fails if it exceeds nvcc's by both this factor and this number.
MOST_FACTOR, MOST_MORE = 1.1, 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", action="append", default=[])
    parser.add_argument("--contraction", default="fast", choices=("off", "on", "fast"))
    parser.add_argument("--bits", type=int, default=64, choices=(32, 64))
    parser.add_argument("--markdown", action="store_true", help="the table of docs/performance.md")
    chosen = parser.parse_args()
    places, runner = places_for(), ProcessRunner()
    llvm = choose_llvm(find_llvm(places), places.llvm, llvm_probe(runner))
    cuda = choose_toolkit(places, runner)
    nvcc = shutil.which("nvcc")
    tools = Tools(
        (sys.executable, "-m", "mlir_offload.driver", f"--llvm={llvm.version.major}"),
        llvm.tool("clang++"),
        cuda.ptxas,
        cuda.libdevice,
        nvdisasm(),
        Path(nvcc) if nvcc else None,
    )
    table = Table(
        title=f"LLVM {llvm.version}, CUDA {cuda.version}, -ffp-contract={chosen.contraction}, "
        f"indices of {chosen.bits} bits"
    )
    for heading in COLUMNS:
        table.add_column(heading, justify="left" if heading in {"arch", "loop"} else "right")
    found = {
        arch: add_rows(table, tools, Case(arch, chosen.contraction, chosen.bits))
        for arch in chosen.arch or ARCHS
    }
    if chosen.markdown:
        print_markdown(found)
    else:
        Console(width=150).print(table)


def add_rows(table: Table, tools: Tools, case: Case) -> dict[str, str]:
    """Add a row for each loop; return its instruction counts by mlir-offload, clang and nvcc for the docs."""
    makers = [tools.own, tools.by_clang]
    if case.is_nvidia and tools.nvcc is not None:
        makers.append(tools.by_nvcc)
    with tempfile.TemporaryDirectory() as name:
        made = [make(case, Path(name)) for make in makers]
        codes = [tools.read(path) for path in made]
        resources = [tools.resources(case, path) for path in made]
    found = {}
    for title, loop in LOOPS.items():
        counts = [loop.per_element(one, case.vendor) for one in codes]
        kernels = [one[loop.kernel] for one in resources]
        table.add_row(
            case.arch,
            title,
            " ".join(f"{count:.2f}" for count in counts),
            *(counted(loop, codes, case, kind) for kind in KINDS),
            " ".join(str(kernel.registers) for kernel in kernels),
            " ".join(str(visible_parameters(kernel)) for kernel in kernels),
            " ".join(str(one[loop.kernel].size) for one in codes),
            style="red" if is_more(*counts) else "",
        )
        found[title] = " / ".join(f"{count:.2g}" for count in counts)
    return found


KINDS = ("fused", "wide_load", "wide_index")


def is_more(ours: float, clang: float, nvcc: float | None = None) -> bool:
    """Return whether a loop exceeds its limit of instructions."""
    return ours > clang or (nvcc is not None and ours > max(nvcc * MOST_FACTOR, nvcc + MOST_MORE))


def visible_parameters(kernel: DeviceKernel) -> int:
    """Return the number of explicit parameters of a kernel."""
    return sum(not parameter.is_hidden for parameter in kernel.parameters or ())


def counted(loop: Loop, codes: Sequence[Mapping[str, Code]], case: Case, kind: str) -> str:
    """Return the number of operations of a kind per element in a loop, for each compiler."""
    unit = getattr(case.vendor, loop.unit)
    bodies = [loop.find(one, case.vendor) for one in codes]
    pattern = getattr(case.vendor, kind)
    return " ".join(f"{len(body.operations(pattern)) / body.elements(unit):.3g}" for body in bodies)


def print_markdown(found: Mapping[str, Mapping[str, str]]) -> None:
    """Print the table of docs/performance.md."""
    rows = [
        ("loop", *found),
        ("---",) * (len(found) + 1),
        *((title, *(counts[title] for counts in found.values())) for title in LOOPS),
    ]
    sys.stdout.writelines(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    main()
