"""Compare links by the driver with links by clang alone, for objects of both in many orders.

Each line links kernels of MLIR and clang's OpenMP target regions, as objects and in static libraries.
A line is wrong if clang's program runs and ours does not link or prints something else, or if ours
links and then fails.

usage: python tests/foreign/links.py [--llvm 19 22] [--lines N] [--seed N]
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = (sys.executable, "-m", "mlir_offload.driver")
KERNEL = """
module attributes {{gpu.container_module}} {{
gpu.module @m{number} {{
  gpu.func @k{number}(%x: !llvm.ptr) kernel {{
    %c = arith.constant {number} : i32
    llvm.store %c, %x : i32, !llvm.ptr
    gpu.return
  }}
}}
func.func @p{number}(%x: !llvm.ptr) {{
  %c1 = arith.constant 1 : index
  gpu.launch_func @m{number}::@k{number} blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
      args(%x : !llvm.ptr)
  return
}}
}}
"""
REGION = """
void p{number}(int *x) {{
  int value = {number};
#pragma omp target map(tofrom: value)
  value *= 1;
  *x = value;
}}
"""
PIECES = {1: KERNEL, 2: KERNEL, 3: REGION, 4: REGION}


def run(*argv: object, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_TARGET_OFFLOAD": "mandatory"}
    words = [str(word) for word in argv]
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def must(*argv: object, folder: Path) -> None:
    done = run(*argv, folder=folder)
    if done.returncode:
        sys.exit(done.stderr)


def make_pieces(major: int, folder: Path) -> None:
    """Make an object and a static library of each piece."""
    prefix = Path(f"/usr/lib/llvm-{major}/bin")
    for number, form in PIECES.items():
        source = folder / f"p{number}{'.mlir' if form is KERNEL else '.c'}"
        source.write_text(form.format(number=number), encoding="utf-8")
        ours = (*OURS, f"--for-clang={major}", "--offload-arch=host")
        theirs = (prefix / "clang", "-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu")
        compiler = ours if form is KERNEL else theirs
        must(*compiler, "-c", source, "-o", f"p{number}.o", folder=folder)
        must(prefix / "llvm-ar", "rcs", f"libp{number}.a", f"p{number}.o", folder=folder)


def lines(count: int, seed: int) -> Iterator[list[str]]:
    """Yield the pieces of a line in an order, each as an object or a library."""
    source = random.Random(seed)  # noqa: S311 (the same each time)
    for _ in range(count):
        numbers = source.sample(sorted(PIECES), source.randint(1, len(PIECES)))
        yield [source.choice(("p{}.o", "libp{}.a")).format(number) for number in numbers]


def outputs(major: int, line: Sequence[str], folder: Path) -> tuple[str, str, str]:
    """Return what has to be printed, and what the programs of clang and of the driver print.

    A link or program that fails gives its error instead.
    """
    numbers = sorted(int(name.strip("libp.ao")) for name in line)
    declared = "".join(f"void p{number}(int *);\n" for number in numbers)
    body = "".join(f'p{number}(&x); printf("%d ", x);' for number in numbers)
    text = f"#include <stdio.h>\n{declared}int main(void) {{ int x = 0; {body} return 0; }}\n"
    (folder / "main.c").write_text(text, encoding="utf-8")
    clang = f"/usr/lib/llvm-{major}/bin/clang"
    must(clang, "-c", "main.c", "-o", "main.o", folder=folder)
    ours = (*OURS, f"--for-clang={major}", "main.o", *line)
    (library,) = sorted(Path(f"/usr/lib/llvm-{major}/lib").glob("libomptarget.so.*.*"))[:1]
    where = (library, f"-Wl,-rpath,{library.parent}")
    theirs = (clang, "--offload-link", "main.o", *line, "runtime.o", *where, "-ldl", "-lpthread")
    results = [
        printed((*argv, "-o", folder / name), folder / name, folder)
        for name, argv in (("theirs", theirs), ("ours", ours))
    ]
    return "".join(f"{number} " for number in numbers), results[0], results[1]


def printed(link: Sequence[object], program: Path, folder: Path) -> str:
    program.unlink(missing_ok=True)
    done = run(*link, folder=folder)
    if done.returncode:
        return f"not linked: {done.stderr.strip()}"
    done = run(program, folder=folder)
    return done.stdout if not done.returncode else f"failed: {done.stderr.strip()}"


def keep_runtime(major: int, folder: Path) -> None:
    """Keep the runtime that the driver links with, for clang's links."""
    (folder / "empty.c").write_text("int main(void) { return 0; }\n", encoding="utf-8")
    flags = (f"--for-clang={major}", f"-save-temps={folder / 'temps'}")
    must(*OURS, *flags, "empty.c", "p1.o", "-o", folder / "kept", folder=folder)
    (folder / "runtime.o").write_bytes((folder / "temps" / "runtime.o").read_bytes())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llvm", type=int, nargs="+", default=[19, 22])
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT / ".importroot")
    wrong = 0
    for major in options.llvm:
        with tempfile.TemporaryDirectory(prefix="mlir-offload-links-") as name:
            folder = Path(name)
            make_pieces(major, folder)
            keep_runtime(major, folder)
            ran = 0
            for line in lines(options.lines, options.seed):
                expected, theirs, ours = outputs(major, line, folder)
                ran += theirs == expected
                is_refused = ours.startswith("not linked") and theirs != expected
                if ours != expected and not is_refused:
                    wrong += 1
                    sys.stdout.write(f"LLVM {major}: {' '.join(line)}\n  {theirs}\n  {ours}\n")
            sys.stdout.write(
                f"LLVM {major}: {options.lines} lines, {ran} run as clang links them\n"
            )
            sys.stdout.flush()
    sys.stdout.write(f"{wrong} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
