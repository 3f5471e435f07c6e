"""Count the instructions of GPU kernels beside those that clang and nvcc make of the same kernels in C++.

For each loop: instructions for one element; fused multiply-adds, loads of more than 32 bits and operations
on 64-bit indices in the loop; registers of the kernel, and its parameters. A row is red if the loop has more
instructions than by clang, or by nvcc more than two or a tenth, whatever is more.

usage: python tests/bench/gpu_code.py [--arch NAME]... [--contraction fast|off] [--bits 64|32]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.table import Table
from support.gpu_code import Code
from support.gpu_comparison import LOOPS, Case, Loop, Tools, nvdisasm

from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.toolchain.llvm import choose_llvm, llvm_probe
from mlir_offload.toolchain.process import ProcessRunner
from mlir_offload.toolchain.search import find_llvm

ARCHS = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx1100")
# More instructions by this factor, or by this number, than nvcc makes are too many.
MOST_FACTOR, MOST_MORE = 1.1, 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", action="append", default=[])
    parser.add_argument("--contraction", default="fast", choices=("off", "fast"))
    parser.add_argument("--bits", type=int, default=64, choices=(32, 64))
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
    for heading in ("arch", "loop", "ours", "clang", "nvcc", "fused", "wide", "64-bit", "all"):
        table.add_column(heading, justify="left" if heading in {"arch", "loop"} else "right")
    for arch in chosen.arch or ARCHS:
        add_rows(table, tools, Case(arch, chosen.contraction, chosen.bits))
    Console().print(table)


def add_rows(table: Table, tools: Tools, case: Case) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        own = tools.read(tools.own(case, directory))
        clang = tools.read(tools.by_clang(case, directory))
        has_nvcc = case.is_nvidia and tools.nvcc is not None
        nvcc = tools.read(tools.by_nvcc(case, directory)) if has_nvcc else {}
    for title, loop in LOOPS.items():
        ours, theirs = (loop.per_element(one, case.vendor) for one in (own, clang))
        best = loop.per_element(nvcc, case.vendor) if nvcc else None
        is_more = ours > theirs or (
            best is not None and ours > max(best * MOST_FACTOR, best + MOST_MORE)
        )
        shown = (f"{ours:.2f}", f"{theirs:.2f}", "" if best is None else f"{best:.2f}")
        table.add_row(
            case.arch,
            title,
            *shown,
            *(counted(loop, own, clang, nvcc, case, kind) for kind in KINDS),
            " ".join(str(one[loop.kernel].size) for one in (own, clang, nvcc) if one),
            style="red" if is_more else "",
        )


KINDS = ("fused", "wide_load", "wide_index")


def counted(
    loop: Loop,
    own: Mapping[str, Code],
    clang: Mapping[str, Code],
    nvcc: Mapping[str, Code],
    case: Case,
    kind: str,
) -> str:
    """Return how many operations of a kind each of them has in the loop for one element."""
    unit = getattr(case.vendor, loop.unit)
    bodies = [loop.find(one, case.vendor) for one in (own, clang, nvcc) if one]
    pattern = getattr(case.vendor, kind)
    return " ".join(f"{len(body.operations(pattern)) / body.elements(unit):.3g}" for body in bodies)


if __name__ == "__main__":
    main()
