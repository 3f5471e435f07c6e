"""Time `inspect` and `extract` on an executable with 1,000 kernels for four architectures, of 200 MB.

The cubins are ptxas's own, with a section of padding added; the executable registers every kernel.
Each figure is a whole process: the median of its wall time and the most memory that it held.

usage: python tests/bench/inspection.py [--kernels N] [--megabytes N] [--runs N] [--llvm PREFIX] [--cuda PATH]
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARCHS = ("80", "86", "89", "90")
PARTS = (4, 2, 1)
_SECTION = struct.Struct("<IIQQQQIIQQ")
_TABLE_AT, _COUNT_AT = 0x28, 0x3C
_KERNEL = """\
.visible .entry kernel_{0:04}(.param .u64 data, .param .f32 scale, .param .u32 count)
.maxntid 256
{{
  .reg .pred %p; .reg .f32 %f<3>; .reg .b32 %r<5>; .reg .b64 %d<3>;
  .shared .align 4 .b8 tile[1024];
  ld.param.u64 %d1, [data]; ld.param.f32 %f1, [scale]; ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %p, %r2, %r1;
  @%p bra end;
  mul.wide.u32 %d2, %r2, 4; add.s64 %d1, %d1, %d2;
  ld.global.f32 %f2, [%d1]; fma.rn.f32 %f2, %f2, %f1, {0}.0; st.shared.f32 [tile+4], %f2;
  bar.sync 0;
  st.global.f32 [%d1], %f2;
end: ret;
}}
"""


@dataclass(frozen=True)
class Figures:
    """What one command took."""

    seconds: float
    peak_bytes: int


def run(*argv: str | Path) -> None:
    subprocess.run([str(word) for word in argv], check=True, capture_output=True)


def make_cubins(work: Path, kernels: int, cuda: Path) -> list[Path]:
    """Let ptxas make the cubins, a process for each architecture at the same time."""
    source = work / "kernels.ptx"
    text = "".join(_KERNEL.format(number) for number in range(kernels))
    source.write_text(f".version 8.0\n.target sm_80\n.address_size 64\n{text}")
    cubins = [work / f"sm_{arch}.cubin" for arch in ARCHS]
    jobs = [
        subprocess.Popen([cuda / "bin/ptxas", f"-arch=sm_{arch}", source, "-o", cubin])
        for arch, cubin in zip(ARCHS, cubins, strict=True)
    ]
    if any(job.wait() for job in jobs):
        sys.exit("ptxas failed")
    return cubins


def pad(cubin: Path, output: Path, size: int) -> None:
    """Add a section, so that the file has about that size and is still what its headers say."""
    data = bytearray(cubin.read_bytes())
    (table,) = struct.unpack_from("<Q", data, _TABLE_AT)
    (count,) = struct.unpack_from("<H", data, _COUNT_AT)
    headers = data[table : table + count * _SECTION.size]
    place = len(data)
    padding = max(0, size - place - len(headers) - _SECTION.size) // 8 * 8
    new_table = -(-(place + padding) // 8) * 8
    struct.pack_into("<Q", data, _TABLE_AT, new_table)
    struct.pack_into("<H", data, _COUNT_AT, count + 1)
    with output.open("wb") as file:
        file.write(data)
        block = os.urandom(1 << 20)
        for begin in range(0, padding, len(block)):
            file.write(block[: padding - begin])
        file.seek(new_table)
        # SHT_PROGBITS without a name, which is that of section 0.
        file.write(headers + _SECTION.pack(0, 1, 0, 0, place, padding, 0, 0, 1, 0))


def make_executable(
    work: Path, name: str, cubins: Iterable[Path], kernels: int, tools: argparse.Namespace
) -> Path:
    """Make a program whose `.nv_fatbin` holds the cubins and whose entries name every kernel."""
    images = [
        f"--image3=kind=elf,sm={arch},file={cubin}"
        for arch, cubin in zip(ARCHS, cubins, strict=True)
    ]
    fatbin = work / f"{name}.fatbin"
    run(tools.cuda / "bin/fatbinary", f"--create={fatbin}", "-64", "--compress=false", *images)
    lines = ['.section .nv_fatbin,"a"', f'.incbin "{fatbin}"', ".text", ".globl main", "main: ret"]
    for number in range(kernels):
        lines += [
            '.section .llvm.rodata.offloading,"a"',
            f'name{number}: .asciz "kernel_{number:04}"',
            '.section llvm_offload_entries,"aw"',
            ".p2align 3",
            ".quad 0",
            ".short 1, 2",
            f".long 0\n.quad main, name{number}, 0, 0, 0",
        ]
    source, program = work / f"{name}.s", work / name
    source.write_text("\n".join(lines) + "\n")
    run(tools.llvm / "bin/clang", "-fuse-ld=lld", source, "-o", program)
    fatbin.unlink()
    return program


def measure(argv: Sequence[str | Path], runs: int, folder: Path) -> Figures:
    """Return the median time and the most memory of a command, after one run to warm up."""
    times, peak = [], 0
    for turn in range(runs + 1):
        start = time.monotonic()
        child = subprocess.Popen(
            [str(word) for word in argv],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{argv} ended with {status}")
        if turn:
            times.append(time.monotonic() - start)
            peak = max(peak, usage.ru_maxrss << 10)
    return Figures(statistics.median(times), peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--llvm", type=Path, default=Path("/usr/lib/llvm-22"))
    parser.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda-13.0"))
    tools = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPATH", str(ROOT / ".importroot"))
    with tempfile.TemporaryDirectory(prefix="mlir-offload-bench-") as folder:
        show("command", "size", "kernels", "time", "memory")
        for part in PARTS:
            measure_part(Path(folder), part, tools)


def measure_part(work: Path, part: int, tools: argparse.Namespace) -> None:
    """Make a program of a part of the size, and measure every command with it."""
    kernels = tools.kernels // part
    cubins = make_cubins(work, kernels, tools.cuda)
    padded = [cubin.with_suffix(".padded") for cubin in cubins]
    for cubin, output in zip(cubins, padded, strict=True):
        pad(cubin, output, (tools.megabytes << 20) // part // len(ARCHS))
    program = make_executable(work, f"program{part}", padded, kernels, tools)
    commands: dict[str, tuple[str | Path, ...]] = {
        "inspect": ("inspect", program),
        "inspect --json": ("inspect", "--json", program),
        "inspect --html": ("inspect", f"--html={work / 'page.html'}", program),
        "extract": ("extract", program, "-o", f"{work}/images/"),
    }
    for name, words in commands.items():
        figures = measure((sys.executable, "-m", "mlir_offload.driver", *words), tools.runs, work)
        show(
            name,
            f"{program.stat().st_size >> 20} MiB",
            str(kernels * len(ARCHS)),
            f"{figures.seconds:.2f} s",
            f"{figures.peak_bytes >> 20} MiB",
        )


def show(first: str, *others: str) -> None:
    sys.stdout.write(f"{first:16}{''.join(f'{word:>10}' for word in others)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
