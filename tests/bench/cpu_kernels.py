"""Time kernels of a CPU image and the same kernels in plain C, compiled by the same compiler.

The times are processor times of one thread, the least of several runs; only their ratio matters.
Multiplications and additions are fused in both, as is C's default; f16 operations round individually in both,
as on GPUs. With --threads, the speedup of two threads over one is measured too, in elapsed time, which
requires an idle machine.

usage: python tests/bench/cpu_kernels.py [--llvm PREFIX] [--march NAME] [--no-collapse] [--kernel NAME]
    [--threads] [--opencl LIBRARY]... [--markdown]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mlir_offload.driver.tools.choose import places_for
from mlir_offload.toolchain.llvm import LlvmToolchain, choose_llvm, llvm_probe
from mlir_offload.toolchain.process import Command, ProcessRunner, run_checked
from mlir_offload.toolchain.search import find_llvm
from mlir_offload.translate.cpu.module import (
    cpu_collapse_command,
    cpu_device_ir,
    cpu_image_command,
    cpu_runtime_command,
    finish_cpu_ir,
)
from mlir_offload.translate.kernel import ParameterForm
from mlir_offload.translate.kind_lowering import Contraction
from mlir_offload.translate.legalize.split import SplitOptions, split_program
from mlir_offload.translate.lower import (
    device_pipeline_command,
    normalize_command,
    translate_command,
    unwrap_device,
)
from mlir_offload.translate.mlir.module import parse_module

SOURCES = Path(__file__).resolve().parent / "cpu"
RUNTIME = Path(__file__).resolve().parents[2] / "offload" / "runtime"
# The largest accepted ratio of the time of the image to that of C.
LIMITS = {
    "saxpy": 1.9,
    "axpy_f16": 1.5,
    "reduce": 5.0,
    "matmul": 1.9,
    "bmm": 1.5,
    "transpose": 1.9,
    "stencil": 1.9,
    "softmax": 1.5,
    "layernorm": 4.0,
    "scan": 2.5,
    "blackscholes": 1.9,
    "histogram": 1.5,
    "nbody": 1.2,
    "spmv": 1.9,
    "bitonic": 1.9,
}
# The same options as in the image: libm may be vectorized, and does not set errno.
MATH = ("-fveclib=libmvec", "-fno-math-errno")
# MLIR does not allow excess precision.
ROUNDED = ("-Xclang", "-ffloat16-excess-precision=none")
RUNNER = ProcessRunner()


def run(*argv: object) -> str:
    return run_checked(RUNNER, Command(tuple(map(str, argv)))).stdout


def lowered(llvm: LlvmToolchain, work: Path) -> str:
    """Return the NVVM IR of the kernels, with the kernel names of the source."""
    source = SOURCES / "kernels.mlir"
    generic, device, low, alone, text = (work / name for name in ("g", "d", "l", "a", "t"))
    run_checked(RUNNER, normalize_command(llvm, source, generic))
    program = split_program(
        generic.read_text(),
        SplitOptions(
            source_text=source.read_text(),
            unit_id="b",
            parameters=ParameterForm.PARTS,
            llvm_major=llvm.version.major,
        ),
    )
    (module,) = program.modules
    device.write_text(module.text)
    run_checked(RUNNER, device_pipeline_command(llvm, device, low, module=module))
    alone.write_text(
        unwrap_device(
            parse_module(low.read_text()), "nvptx64-nvidia-cuda", contraction=Contraction.FAST
        )
    )
    run_checked(RUNNER, translate_command(llvm, alone, text))
    ir = text.read_text()
    for kernel in module.kernels:
        ir = ir.replace(kernel.symbol, kernel.name)
    return ir


def built(
    llvm: LlvmToolchain, work: Path, march: str, *, collapses: bool
) -> tuple[Path, dict[str, float]]:
    """Return the shared image, and the seconds that each step took."""
    ir = lowered(llvm, work)
    before, after, final, runtime, image, library = (
        work / name for name in ("before.ll", "after.ll", "f.ll", "r.bc", "i.o", "image.so")
    )
    seconds: dict[str, float] = {}
    start = time.perf_counter()

    def done(step: str) -> None:
        nonlocal start
        now = time.perf_counter()
        seconds[step], start = now - start, now

    library_path = llvm.library if collapses else None
    names = tuple(LIMITS)
    source = cpu_device_ir(ir, kernels=names, for_collapse=library_path is not None)
    before.write_text(source.text)
    done("rewrite")
    if library_path is not None:
        run_checked(RUNNER, cpu_collapse_command(library_path, before, after, names, ""))
        done("collapse")
        source = finish_cpu_ir(after.read_text(), source)
    final.write_text(source.text)
    done("finish")
    run_checked(RUNNER, cpu_runtime_command(llvm, runtime, march=march))
    done("runtime")
    run_checked(RUNNER, cpu_image_command(llvm, final, runtime, image, march=march))
    done("clang")
    run(llvm.tool("clang"), "-shared", image, "-lm", "-o", library)
    return library, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llvm", default="", help="prefix or release; default: the newest")
    parser.add_argument("--march", default="native")
    parser.add_argument("--no-collapse", action="store_true", help="as without libLLVM")
    parser.add_argument("--kernel", default="", help="one kernel only")
    parser.add_argument("--threads", action="store_true", help="compare two threads with one")
    parser.add_argument("--opencl", action="append", default=[], help="libOpenCL to compare with")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/performance.md")
    arguments = parser.parse_args()
    places = places_for(llvm=arguments.llvm)
    llvm = choose_llvm(find_llvm(places), places.llvm, llvm_probe(RUNNER))
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        library, seconds = built(llvm, work, arguments.march, collapses=not arguments.no_collapse)
        program = work / "reference"
        options = ("-O3", f"-march={arguments.march}", f"-I{RUNTIME}", *MATH, *ROUNDED)
        run(llvm.tool("clang"), *options, SOURCES / "reference.c", "-lm", "-o", program)
        lines = run(program, library, *filter(None, [arguments.kernel])).splitlines()
        columns = [opencl_times(library) for library in arguments.opencl]
        columns += [two_threads(program, library)] if arguments.threads else []
    rows = [tuple(line.split()) for line in lines]
    if arguments.markdown:
        print_markdown(rows, columns, arguments)
        return
    table = Table(title=f"LLVM {llvm.version}, -march={arguments.march}, one thread")
    headings = ("kernel", "image, ms", "C, ms", "ratio", "at most", *map(Path, arguments.opencl))
    for heading in (*headings, *(["two threads"] if arguments.threads else [])):
        table.add_column(str(heading), justify="left" if heading == "kernel" else "right")
    for name, image, plain in rows:
        ratio = float(image) / float(plain)
        shown = (f"{float(image):.2f}", f"{float(plain):.2f}", f"{ratio:.2f}", f"{LIMITS[name]}")
        style = "red" if ratio > LIMITS[name] else ""
        table.add_row(name, *shown, *(column.get(name, "-") for column in columns), style=style)
    console = Console()
    console.print(table)
    console.print("; ".join(f"{step} {spent:.3f} s" for step, spent in seconds.items()))


def opencl_times(library: str) -> dict[str, str]:
    """Return the time of each kernel with an OpenCL implementation, in milliseconds."""
    script = Path(__file__).with_name("opencl_kernels.py")
    lines = run(sys.executable, script, library).splitlines()
    return dict(line.split() for line in lines)


def two_threads(program: Path, library: Path) -> dict[str, str]:
    """Return the speedup of two threads over one thread, per kernel."""
    found = (line.split() for line in run(program, library, "two").splitlines())
    return {name: f"{float(one) / float(two):.2f}" for name, one, two in found}


def print_markdown(
    rows: Sequence[Sequence[str]],
    columns: Sequence[Mapping[str, str]],
    arguments: argparse.Namespace,
) -> None:
    """Print the table of docs/performance.md: times relative to C, and two threads relative to one."""
    others = [f"{Path(path).name} / C" for path in arguments.opencl]
    headings = ["kernel", "image / C", *others, *(["two threads"] if arguments.threads else [])]
    table = [headings, ["---"] * len(headings)]
    for name, image, plain in rows:
        times = [column.get(name, "-") for column in columns]
        cells = [
            f"{float(time) / float(plain):.2g}" if time != "-" else "-"
            for time in times[: len(others)]
        ]
        cells = [f"{float(image) / float(plain):.2g}", *cells, *times[len(others) :]]
        table.append([name, *cells])
    sys.stdout.writelines(f"| {' | '.join(row)} |\n" for row in table)


if __name__ == "__main__":
    main()
