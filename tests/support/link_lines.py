"""Link random lines of objects and libraries of the driver and of clang, with both, and run both programs.

CPU code runs through libomptarget. GPU code is linked by the real tools and registered with libraries that
report the kernel of each launch and keep the registered binary. The binary must define every kernel for
every architecture on the line.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.offload.file.contents_reader import read_contents
from mlir_offload.toolchain.process import ProcessRunner
from mlir_offload.toolchain.target import host_triple

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ROOT / "tests" / "integration" / "inputs"
DEVICE_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
OURS = (sys.executable, "-m", "mlir_offload.driver")
KERNEL = """
module attributes {{gpu.container_module}} {{
gpu.module @m{number} {{
  gpu.func @{kernel}(%x: !llvm.ptr) kernel {{
    %c = arith.constant {number} : i32
    llvm.store %c, %x : i32, !llvm.ptr
    gpu.return
  }}
}}
func.func @p{number}(%x: !llvm.ptr) {{
  %c1 = arith.constant 1 : index
  gpu.launch_func @m{number}::@{kernel} blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
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
GPU_CPP = """
#include "{header}"
extern "C" __global__ void {kernel}(int *x) {{ *x = {number}; }}
extern "C" void p{number}(int *x) {{ {kernel}<<<dim3(1), dim3(1)>>>(x); }}
"""
MAIN = """
#include <stdio.h>
{declared}
int main(void) {{
  int x;
{body}
  return 0;
}}
"""
GPU_ARCHS = {"cuda": ("sm_80", "sm_86"), "hip": ("gfx90a", "gfx1030")}
HOST = "host"
# Pieces from this number on are OpenMP code of clang.
OPENMP = 91
_NEWER_CODE_OBJECTS = 20
_LAUNCH = re.compile(r"(\w+) of (\w+) p(\d+)=")


@dataclass(frozen=True, slots=True)
class Piece:
    """A function `p<number>` with a kernel, compiled by the driver or by clang with `flags`."""

    number: int
    kind: str
    is_ours: bool
    archs: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    kernel: str = ""

    @property
    def name(self) -> str:
        """Return the name of the kernel."""
        return self.kernel or f"k{self.number}"


def pieces_of(kind: str, *, has_openmp: bool) -> tuple[Piece, ...]:
    """Return the pieces of lines for a device kind; OpenMP code of clang can be part of any line."""
    openmp = tuple(Piece(OPENMP + n, HOST, is_ours=False) for n in range(2 * has_openmp))
    if kind == HOST:
        return (
            *(Piece(number, HOST, is_ours=True) for number in (1, 2)),
            *(Piece(number, HOST, is_ours=True, kernel="same") for number in (3, 4)),
            *openmp,
        )
    both = GPU_ARCHS[kind]
    lto = ("-foffload-lto",)
    return (
        Piece(11, kind, is_ours=True, archs=both),
        Piece(12, kind, is_ours=True, archs=both, kernel="same"),
        Piece(13, kind, is_ours=True, archs=both, kernel="same"),
        Piece(14, kind, is_ours=True, archs=both[:1]),
        Piece(15, kind, is_ours=False, archs=both, flags=lto),
        Piece(16, kind, is_ours=False, archs=both, flags=lto),
        Piece(17, kind, is_ours=False, archs=both),
        *openmp,
    )


Word = tuple[int, str]
_MIXED = 0.25
_FORMS = (
    "{}",
    "{}",
    "lib{}.a",
    "libthin{}.a",
    "-Wl,--whole-archive lib{}.a -Wl,--no-whole-archive",
)


# Options that may be added to a line.
_OPTIONS = (
    "-Wl,--gc-sections",
    "-fuse-ld=bfd",
    "-flto",
    "-Wl,-s",
    "-Wl,-z,defs",
    "-Wl,--as-needed",
)
_WITH_OPTION = 0.3


def random_lines(pieces: Sequence[Piece], count: int, seed: int) -> Iterator[tuple[Word, ...]]:
    """Yield random lines: pairs of a piece's number and the format of its name on the line.

    Some lines also have an option, with the number 0.
    """
    source = random.Random(seed)  # noqa: S311 (the same each time)
    numbers = [piece.number for piece in pieces]
    # A piece with fewer architectures than the others makes the line fail, unless all have the same ones.
    alike = [piece.number for piece in pieces if len(piece.archs) != 1]
    for _ in range(count):
        known = numbers if source.random() < _MIXED else alike
        chosen = source.sample(known, source.randint(1, min(4, len(known))))
        words = [(number, source.choice(_FORMS)) for number in chosen]
        if source.random() < _WITH_OPTION:
            words.insert(source.randint(0, len(words)), (0, source.choice(_OPTIONS)))
        yield tuple(words)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A line, and the errors of clang's link and of the driver's link, or of their programs; empty if right."""

    line: str
    theirs: str
    ours: str
    is_refused: bool

    @property
    def is_wrong(self) -> bool:
        """Return whether the driver dropped a kernel, or rejected a line that clang links and runs."""
        return bool(self.ours) and not (self.is_refused and self.theirs)


@dataclass(frozen=True, slots=True)
class Lines:
    """A directory with the pieces for lines of one kind, made for one release."""

    major: int
    kind: str
    folder: Path
    driver: Sequence[str]
    pieces: tuple[Piece, ...]
    # The words of clang's own command before and after the inputs.
    before: tuple[str, ...]
    behind: tuple[str, ...]

    def outcome(self, line: Sequence[Word]) -> Outcome:
        """Link a line with clang and with the driver, and run both programs."""
        words = self._main(line)
        text = " ".join(words[1:])
        done = _run(self.folder, *self.before, *words, *self.behind, "-o", "theirs")
        theirs = self._judged("theirs", line) if not done.returncode else _said(done)
        done = _run(self.folder, *self.driver, *words, "-o", "ours")
        ours = self._judged("ours", line) if not done.returncode else _said(done)
        return Outcome(text, theirs, ours, is_refused=bool(done.returncode))

    def _main(self, line: Sequence[Word]) -> list[str]:
        numbers = [number for number, _ in line if number]
        declared = "".join(f"void p{number}(int *);\n" for number in numbers)
        body = "".join(f'  x = 0; p{n}(&x); printf("p{n}=%d\\n", x);\n' for n in numbers)
        source = self.folder / "main.c"
        source.write_text(MAIN.format(declared=declared, body=body), encoding="utf-8")
        _must(self.folder, _clang(self.major), "-c", source, "-o", "main.o")
        words = [word for number, form in line for word in form.format(f"p{number}.o").split()]
        return ["main.o", *words]

    def _judged(self, program: str, line: Sequence[Word]) -> str:
        """Run a program and return its errors."""
        binaries = self.folder / f"{program}.binaries"
        binaries.mkdir(exist_ok=True)
        done = _run(self.folder, f"./{program}", LINKED_BINARIES=str(binaries))
        if done.returncode:
            return f"exits with {done.returncode}: {done.stderr.strip()[-200:]}"
        launches = {int(found[3]): (found[1], found[2]) for found in _LAUNCH.finditer(done.stdout)}
        on_line = [piece for number, _ in line for piece in self.pieces if piece.number == number]
        faults = []
        for piece in on_line:
            if piece.kind == HOST:
                is_right = f"p{piece.number}={piece.number}\n" in done.stdout
                faults += [] if is_right else [f"p{piece.number} does not store {piece.number}"]
                continue
            name, binary = launches.get(piece.number, ("nothing", ""))
            archs = {arch for one in on_line if one.kind == piece.kind for arch in one.archs}
            held = _archs_with(binaries / binary, name) if name == piece.name else set()
            faults += [f"{name} of p{piece.number} lacks {arch}" for arch in sorted(archs - held)]
        return "; ".join(faults)


def make_lines(
    major: int,
    kind: str,
    folder: Path,
    *,
    has_openmp: bool,
    only: Collection[int] = (),
    driver: Sequence[str] = OURS,
) -> Lines:
    """Make the pieces of lines, all or those with some numbers.

    Raises CalledProcessError if a tool fails.
    """
    _make_runtimes(folder)
    driver = _with_paths(driver, major, folder)
    pieces = pieces_of(kind, has_openmp=has_openmp)
    pieces = tuple(piece for piece in pieces if not only or piece.number in only)
    for piece in pieces:
        _make(piece, driver, major, folder)
    made = Lines(major, kind, folder, driver, pieces, (), ())
    # clang gets the tools, libraries and runtime with which the driver runs it.
    shown = next(piece for piece in pieces if piece.is_ours)
    line = made._main([(shown.number, "{}")])
    done = _must(
        folder,
        *driver,
        *line,
        "-v",
        f"-save-temps={folder / 'temps'}",
        "-o",
        "kept",
    )
    (command,) = [text for text in done.stderr.splitlines() if " --offload-link " in text]
    words = shlex.split(command)
    first = words.index("main.o")
    last = words.index("-o", first)
    behind = (*words[first + len(line) : last], *(_libomptarget(major) if has_openmp else ()))
    return Lines(major, kind, folder, driver, pieces, tuple(words[:first]), behind)


def _libomptarget(major: int) -> tuple[str, ...]:
    folder = Path(f"/usr/lib/llvm-{major}/lib")
    (library,) = sorted(folder.glob("libomptarget.so.*"))[:1]
    return str(library), f"-Wl,-rpath,{folder}"


def _make(piece: Piece, driver: Sequence[str], major: int, folder: Path) -> None:
    """Make an object, a static library and a thin one of a piece."""
    output = f"p{piece.number}.o"
    words = _ours(piece, driver, folder) if piece.is_ours else _theirs(piece, major, folder)
    _must(folder, *words, "-o", output)
    archiver = Path(f"/usr/lib/llvm-{major}/bin/llvm-ar")
    _must(folder, archiver, "rcs", f"lib{output}.a", output)
    _must(folder, archiver, "rcsT", f"libthin{output}.a", output)


def _ours(piece: Piece, driver: Sequence[str], folder: Path) -> tuple[object, ...]:
    source = folder / f"p{piece.number}.mlir"
    text = KERNEL.format(number=piece.number, kernel=piece.name)
    source.write_text(text, encoding="utf-8")
    archs = ",".join(piece.archs) or HOST
    return (*driver, "-c", f"--offload-arch={archs}", source)


def _theirs(piece: Piece, major: int, folder: Path) -> tuple[object, ...]:
    ending = {"cuda": "cu", "hip": "hip", HOST: "c"}[piece.kind]
    source, form = folder / f"p{piece.number}.{ending}", REGION
    flags: tuple[str, ...] = ("-fopenmp", f"-fopenmp-targets={host_triple()}")
    if piece.kind != HOST:
        form = GPU_CPP
        flags = ("-fgpu-rdc", "--offload-new-driver", f"-I{INPUTS}", "-O1", *piece.flags)
        flags += tuple(f"--offload-arch={arch}" for arch in piece.archs)
    if piece.kind == "cuda":
        flags += ("-nocudainc", "-nocudalib", f"--cuda-path={folder / 'cuda'}")
        flags += ("-Wno-unknown-cuda-version",)
    if piece.kind == "hip":
        flags += ("-nogpuinc", "-nogpulib")
        # From this release on, clang's default version differs from that of the driver, which older runtimes accept.
        flags += ("-mcode-object-version=5",) if major >= _NEWER_CODE_OBJECTS else ()
    text = form.format(number=piece.number, kernel=piece.name, header=f"{piece.kind}_bare.h")
    source.write_text(text, encoding="utf-8")
    return (_clang(major), *flags, "-c", source)


def _make_runtimes(folder: Path) -> None:
    """Create directories of both vendors with the libraries for running programs."""
    toolkit = choose_toolkit(places_for(), ProcessRunner())
    libraries = {
        folder / "cuda" / "lib64": "libcudart.so",
        folder / "rocm" / "lib": "libamdhip64.so",
    }
    source = INPUTS / "link_runtime.c"
    for number, (directory, name) in enumerate(libraries.items()):
        directory.mkdir(parents=True)
        flags = ("-w", "-O1", "-fPIC", "-shared", f"-Wl,-soname,{name}", *("-DHIP",)[:number])
        _must(folder, "cc", *flags, source, "-o", directory / name)
    for name in ("bin", "nvvm", "include"):
        (folder / "cuda" / name).symlink_to(toolkit.root / name)
    (folder / "rocm" / "amdgcn").mkdir()
    (folder / "rocm" / "amdgcn" / "bitcode").symlink_to(DEVICE_LIBRARIES)


def _archs_with(binary: Path, kernel: str) -> set[str]:
    """Return the architectures for which a binary defines a kernel."""
    found = set()
    for image in read_contents(binary).images:
        if image.code and any(one.name == kernel for one in image.code.kernels):
            found.add(image.arch or image.code.arch)
    return found


def _with_paths(driver: Sequence[str], major: int, folder: Path) -> tuple[str, ...]:
    paths = (f"--cuda-path={folder / 'cuda'}", f"--rocm-path={folder / 'rocm'}")
    return (*driver, f"--for-clang={major}", *paths)


def _clang(major: int) -> str:
    return f"/usr/lib/llvm-{major}/bin/clang"


def _run(folder: Path, *argv: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".importroot"), **variables}
    environment |= {"RECORD_QUIET": "1"}
    words = [str(word) for word in argv]
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def _must(folder: Path, *argv: object) -> subprocess.CompletedProcess[str]:
    done = _run(folder, *argv)
    if done.returncode:
        raise subprocess.CalledProcessError(
            done.returncode, shlex.join(map(str, argv)), done.stdout, done.stderr
        )
    return done


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return f"does not link: {done.stderr.strip()}"
