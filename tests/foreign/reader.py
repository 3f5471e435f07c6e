"""The readers of LLVM releases: programs that read LLVM IR, and print or write it again.

For an installed release this is `opt`. For a release that Debian 12 lacks, it is the clang in a `ziglang`
wheel, which is downloaded, or `opt` in the root directory of a newer Debian (`--root=23=DIR`), which runs
with the libraries of that root.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from foreign.source_package import default_cache
from foreign.wheel import download_wheel

# The ziglang wheels with clang of the releases that Debian 12 lacks.
_WHEELS = {17: "0.12.1", 18: "0.13.0.post1", 20: "0.15.2", 21: "0.16.0"}
_PREFIX = "usr/lib/llvm-{release}"
_LIBRARIES = ("libLLVM-{release}.so.1", "libLLVM.so.{release}.1")
_FOLDERS = ("usr/lib/llvm-{release}/lib", "usr/lib/x86_64-linux-gnu")
_TRIPLE = "x86_64-unknown-linux-gnu"
# A name in a binary: a C string, or an entry of a table separated by NULs.
_INTRINSIC = re.compile(rb"(?<=\0)llvm(?:\.[A-Za-z0-9_]+)+(?=\0)")
_SECONDS = 120


@dataclass(frozen=True)
class Answer:
    """The result of a reader: its output, and a message that is empty if it accepted the input."""

    output: bytes
    message: str

    @property
    def is_read(self) -> bool:
        """Return whether the reader accepted the input."""
        return not self.message


@dataclass(frozen=True)
class Reader:
    """The reader of a release. `program` is `opt`, or `zig` for its clang; `binary` has LLVM's tables.

    `loader` is the command prefix that starts a program of another root.
    """

    release: int
    program: Path
    binary: Path
    loader: tuple[str, ...] = ()

    @property
    def is_clang(self) -> bool:
        """Return whether the reader is the clang of a wheel."""
        return self.program.name == "zig"

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the names of intrinsics that the binary contains."""
        return frozenset(name.decode() for name in _INTRINSIC.findall(self.binary.read_bytes()))

    @property
    def clang(self) -> tuple[str, ...]:
        """Return the clang command, of the release or of a wheel; empty if there is none."""
        if not self.is_clang and self.program.with_name("clang").exists():
            return self.tool("clang")
        version = _WHEELS.get(self.release)
        return (str(_fetch(self.release, version)), "clang") if version else ()

    def tool(self, name: str) -> tuple[str, ...]:
        """Return the command of a program of the release."""
        return (*self.loader, str(self.program.with_name(name)))

    def write(self, data: bytes, triple: str = _TRIPLE) -> Answer:
        """Read bitcode or text, verify it and write bitcode."""
        return self._read(data, triple, is_text=False)

    def print(self, data: bytes, triple: str = _TRIPLE) -> Answer:
        """Read bitcode or text, verify it and print text."""
        return self._read(data, triple, is_text=True)

    def compile(self, data: bytes, triple: str, cpu: str, *, is_object: bool = False) -> Answer:
        """Generate unoptimized assembly or an object with the backend."""
        if self.is_clang:
            form = "-emit-obj" if is_object else "-S"
            own_cpu = ("-target-cpu", cpu) if cpu else ()
            return self._run(("-O0", form, *own_cpu), data, triple)
        form = f"-filetype={'obj' if is_object else 'asm'}"
        chosen = (f"-mcpu={cpu}",) if cpu else ()
        return _answer(
            (*self.tool("llc"), "-O0", f"-mtriple={triple}", form, *chosen, "-o", "-"), data
        )

    def summary(self, data: bytes) -> str:
        """Return the error output of reading a module's ThinLTO summary; the exit status of clang is 0 anyway."""
        with tempfile.TemporaryDirectory() as folder:
            module = Path(folder) / "summary.bc"
            module.write_bytes(data)
            command: tuple[str, ...] = (*self.tool("llvm-dis"), "-o", "-")
            if self.is_clang:
                clang = (str(self.program), "clang", "-cc1", "-triple", _TRIPLE, "-x", "ir")
                command = (*clang, f"-fthinlto-index={module}", "-emit-obj", "-o", "-")
            done = subprocess.run((*command, str(module)), capture_output=True, check=False)
        return done.stderr.decode(errors="replace").replace(f"{folder}/", "")

    def spell(self, data: bytes) -> Answer:
        """Print a module that need not be valid."""
        if self.is_clang:
            options = ("-emit-llvm", "-disable-llvm-passes", "-disable-llvm-verifier")
            return self._run(options, data, _TRIPLE)
        return _answer((*self.tool("llvm-dis"), "-o", "-"), data)

    def _read(self, data: bytes, triple: str, *, is_text: bool) -> Answer:
        if self.is_clang:
            form = "-emit-llvm" if is_text else "-emit-llvm-bc"
            return self._run((form, "-disable-llvm-passes"), data, triple)
        form = "-S" if is_text else "-f"
        return _answer((*self.tool("opt"), "-passes=verify", form, "-o", "-"), data)

    def _run(self, arguments: Iterable[str], data: bytes, triple: str) -> Answer:
        """Run clang on the module; it takes the triple from the command line."""
        head = (str(self.program), "clang", "-cc1", "-triple", triple, "-x", "ir", "-w")
        return _answer((*head, *arguments, "-o", "-", "-"), data)


def _answer(command: tuple[str, ...], data: bytes) -> Answer:
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Answer(b"", f"no answer in {_SECONDS} s")
    if done.returncode == 0:
        return Answer(done.stdout, "")
    words = done.stderr.decode(errors="replace").strip()
    return Answer(b"", words or f"exit status {done.returncode}")


def add_reader_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select readers."""
    parser.add_argument("--releases", default="14,15,16,17,18,19,20,21,22")
    parser.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="N=DIR",
        help="a root that has LLVM N, such as one made by debootstrap",
    )


def chosen_readers(options: argparse.Namespace) -> tuple[Reader, ...]:
    """Return the selected readers, oldest first."""
    roots = dict(word.split("=", 1) for word in options.root)
    releases = [int(word) for word in options.releases.split(",")]
    return find_readers(releases, {int(release): Path(root) for release, root in roots.items()})


def table_arguments(text: str | None, table: Path) -> tuple[tuple[Reader, ...], Path | None]:
    """Return the readers that the command line selects, and the table if it is to be written."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawTextHelpFormatter
    )
    add_reader_options(parser)
    parser.add_argument("--write", action="store_true", help="replace the table of the package")
    arguments = parser.parse_args()
    return chosen_readers(arguments), table if arguments.write else None


def print_differences(text: str | None, find: Callable[[tuple[Reader, ...]], Iterable[str]]) -> int:
    """Print the differences from a table for the selected readers; return the exit status."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawTextHelpFormatter
    )
    add_reader_options(parser)
    readers = chosen_readers(parser.parse_args())
    found = list(find(readers))
    print("\n".join((*found, f"{len(readers)} releases, {len(found)} differences")))  # noqa: T201
    return 1 if found else 0


def put_table(text: str, table: Path | None) -> None:
    """Write a table to its file, or print it."""
    if table:
        table.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


def find_readers(
    releases: Iterable[int], roots: Mapping[int, Path] = MappingProxyType({})
) -> tuple[Reader, ...]:
    """Return the readers of these releases, oldest first. Raises RuntimeError if one is missing."""
    return tuple(_find(release, roots.get(release, Path("/"))) for release in sorted(releases))


def _find(release: int, root: Path) -> Reader:
    opt = root / _PREFIX.format(release=release) / "bin" / "opt"
    if opt.exists():
        loader = () if root == Path("/") else _loader(root)
        return Reader(release, opt, _library(release, root), loader)
    if release not in _WHEELS:
        msg = f"no reader of LLVM {release}: install llvm-{release}, or name a root that has it (--root=)"
        raise RuntimeError(msg)
    program = _fetch(release, _WHEELS[release])
    return Reader(release, program, program)


def _loader(root: Path) -> tuple[str, ...]:
    folders = ":".join(
        str(root / folder) for folder in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
    )
    return (str(root / "lib64" / "ld-linux-x86-64.so.2"), "--library-path", folders)


def _library(release: int, root: Path) -> Path:
    names = (
        root / folder.format(release=release) / name.format(release=release)
        for folder in _FOLDERS
        for name in _LIBRARIES
    )
    found = next((path for path in names if path.exists()), None)
    if found is None:
        msg = f"LLVM {release} has no shared library"
        raise RuntimeError(msg)
    return found


def _fetch(release: int, version: str) -> Path:
    """Return the zig of a wheel, downloaded once."""
    folder = default_cache() / "readers" / f"clang-{release}"
    program = folder / "ziglang" / "zig"
    if not program.exists():
        print(f"fetching ziglang {version} for clang {release}", file=sys.stderr, flush=True)  # noqa: T201
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Several programs may download it concurrently.
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
            wheels, content = Path(partial) / "wheel", Path(partial) / "content"
            download_wheel(f"ziglang=={version}", wheels)
            for wheel in wheels.iterdir():
                zipfile.ZipFile(wheel).extractall(content)
            (content / "ziglang" / "zig").chmod(0o755)
            with contextlib.suppress(OSError):
                content.rename(folder)
    return program
