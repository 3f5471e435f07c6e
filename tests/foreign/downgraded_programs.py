"""Run programs that an older release compiled from downgraded IR, and compare with the newest release's own.

usage: python tests/foreign/downgraded_programs.py [--releases=15,16,19,22] [--random=N] [--every=N] [--only=REGEX]

The programs are those of GCC's tests that stop where a result is wrong, from Debian's source package, and random ones
that print a checksum (csmith, from Debian's package). Each release that writes compiles a program with one set of options
to IR; the IR itself, and what a downgrade makes of it for each older release, become programs of those releases. All must
print and end alike. Exit status 1 if one does not.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.source_package import default_cache, fetch_source  # noqa: E402

from mlir_offload.toolchain.errors import CompatibilityError  # noqa: E402
from mlir_offload.translate.downgrade.text import downgrade  # noqa: E402

_GCC = "gcc-12"
_SUITES = {
    "gcc.c-torture/execute": "*.c",
    "gcc.dg/torture": "*.c",
    "gcc.dg/atomic": "*.c",
    "g++.dg/torture": "*.C",
    "g++.dg/eh": "*.C",
    "libgomp.c": "*.c",
    "libgomp.c++": "*.C",
}
# Of all suites but the first only some files are programs, which say so.
_RUNS = re.compile(rb"dg-do\s+run\s*\}|dg-do\s+run\s*\n")
_OPENMP = "libgomp"
_OPTIONS = (("-O0",), ("-O1",), ("-O2",), ("-O1", "-g"), ("-O0", "-g"), ("-O3", "-mavx2"), ("-Os",))
_CSMITH = ("--max-funcs", "4", "--max-block-depth", "3", "--float", "--builtins")
_RULE = re.compile(r"\[([A-Z]+\d+)\]")
_SECONDS = 20


@dataclass(frozen=True)
class Source:
    """A program in C or C++, and its options besides those of all."""

    name: str
    path: Path
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ended:
    """What a program did."""

    status: int
    output: bytes


def torture_sources() -> Iterator[Source]:
    """Return the programs of GCC's tests, fetched and unpacked once."""
    folder = default_cache() / "sources" / f"{_GCC}-tests"
    if not folder.exists():
        _unpack(fetch_source(_GCC, default_cache() / "sources"), folder)
    for suite, pattern in _SUITES.items():
        (root,) = folder.glob(f"*/*/testsuite/{suite}")
        for path in sorted(root.glob(pattern)):
            if suite == next(iter(_SUITES)) or _RUNS.search(path.read_bytes()):
                yield Source(
                    f"{suite}/{path.name}", path, _openmp() if suite.startswith(_OPENMP) else ()
                )


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack the suites; the archive holds that of GCC itself."""
    partial = folder.with_name(f"{folder.name}.partial")
    with tarfile.open(archive) as outer:
        inner = next(one for one in outer if re.search(r"/gcc-[\d.]+[^/]*\.tar\.xz$", one.name))
        with tarfile.open(fileobj=outer.extractfile(inner), mode="r|xz") as content:
            for one in content:
                if any(f"testsuite/{suite}/" in one.name for suite in _SUITES):
                    content.extract(one, partial, filter="data")
    partial.rename(folder)


def random_sources(count: int) -> Iterator[Source]:
    """Return programs that csmith makes, of the seeds from 1 on."""
    if not count:
        return
    root = default_cache() / "csmith"
    if not (root / "usr/include/csmith").exists():
        root.mkdir(parents=True, exist_ok=True)
        packages = ("csmith", "libcsmith-dev")
        subprocess.run(("apt-get", "download", "-qq", *packages), cwd=root, check=True)
        for package in root.glob("*.deb"):
            subprocess.run(("dpkg-deb", "-x", package.name, "."), cwd=root, check=True)
    for seed in range(1, count + 1):
        path = root / f"{seed}.c"
        if not path.exists():
            command = (str(root / "usr/bin/csmith"), *_CSMITH, "--seed", str(seed))
            text = subprocess.run(command, capture_output=True, check=True, cwd=root).stdout
            path.write_bytes(text)
        yield Source(f"csmith/{path.name}", path, (f"-I{root}/usr/include/csmith",))


def outcomes(source: Source, number: int, releases: Sequence[int]) -> list[tuple[str, str]]:
    """Return for each pair of releases what comes of a program: `same`, or how it differs; none if it is no program."""
    found = []
    level = _OPTIONS[number % len(_OPTIONS)]
    with tempfile.TemporaryDirectory() as work:
        for writer in [one for one in releases if one >= releases[-2]]:
            text = _compiled(source, writer, level)
            if not text:
                continue
            wanted = _run(source, text, writer, level, Path(work))
            # What does not end well anywhere says nothing, nor what prints an address.
            if not isinstance(wanted, Ended) or (wanted.status and not wanted.output):
                continue
            if wanted != _call((str(Path(work) / f"{writer}"),), Path(work)):
                continue
            for reader in releases:
                if reader < writer:
                    outcome = _outcome(source, text, reader, level, wanted, Path(work))
                    found.append((f"{source.name} {' '.join(level)} {writer} -> {reader}", outcome))
    return found


def _outcome(
    source: Source, text: str, reader: int, level: Sequence[str], wanted: Ended, work: Path
) -> str:
    try:
        made = downgrade(text, reader=reader)
    except CompatibilityError as error:
        rule = _RULE.search(error.message)
        # The rule, or the construct without its place.
        return f"refused {rule[1] if rule else error.message.partition(' ')[0]}"
    ended = _run(source, made, reader, level, work)
    if not isinstance(ended, Ended):
        return f"REJECTED: {ended}"
    return "same" if ended == wanted else f"DIFFERENT: {wanted} {ended}"


def _clang(release: int, source: Source) -> tuple[str, ...]:
    name = "clang++" if source.path.suffix == ".C" else "clang"
    return (f"/usr/lib/llvm-{release}/bin/{name}", "-w")


def _compiled(source: Source, release: int, level: Sequence[str]) -> str:
    """Return the IR of a program; empty where the release does not compile it."""
    # The tests of GCC are older than what clang now takes for an error.
    dialect = () if source.path.suffix == ".C" else ("-std=gnu89", "-fgnu89-inline")
    dialect = dialect if "c-torture" in source.name else ()
    command = (*_clang(release, source), *level, *source.options, *dialect, "-S", "-emit-llvm")
    done = _call((*command, str(source.path), "-o", "-"))
    return done.output.decode(errors="replace") if done and done.status == 0 else ""


def _run(
    source: Source, text: str, release: int, level: Sequence[str], work: Path
) -> Ended | str | None:
    """Return how the program ends that a release makes of IR; a message if it makes none, None if it never ends."""
    module, program = work / f"{release}.ll", work / f"{release}"
    module.write_text(text, encoding="utf-8")
    program.unlink(missing_ok=True)
    own = [one for one in (*level, *source.options) if one != "-g" and not one.startswith("-I")]
    command = (*_clang(release, source), *own, "-x", "ir", str(module), "-x", "none", "-lm")
    done = subprocess.run((*command, "-o", str(program)), capture_output=True, check=False)
    if not program.exists():
        lines = done.stderr.decode(errors="replace").splitlines()
        return next((line for line in lines if "error" in line), "no message")[-200:]
    return _call((str(program),), work)


@cache
def _openmp() -> tuple[str, ...]:
    """Return the options for OpenMP: Debian has the runtime of one release at a time, which serves all."""
    libraries = sorted(path.parent for path in Path("/usr/lib").glob("llvm-*/lib/libomp.so"))
    headers = sorted(
        path.parent for path in Path("/usr/lib").glob("llvm-*/lib/clang/*/include/omp.h")
    )
    found = [f"-L{one}" for one in libraries] + [f"-Wl,-rpath,{one}" for one in libraries]
    return ("-fopenmp", *found, *(f"-idirafter{one}" for one in headers))


def _call(command: Sequence[str], folder: Path | None = None) -> Ended | None:
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=_SECONDS, cwd=folder
        )
    except subprocess.TimeoutExpired:
        return None
    return Ended(done.returncode, done.stdout)


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--releases", default="15,16,19,22")
    parser.add_argument("--random", type=int, default=200, metavar="N", help="random programs")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth program")
    parser.add_argument("--only", default="", metavar="REGEX", help="only programs that match")
    options = parser.parse_args()
    releases = sorted(int(word) for word in options.releases.split(","))
    every = [*random_sources(options.random), *torture_sources()]
    sources = [one for one in every if re.search(options.only, one.name)][:: options.every]
    counts: Counter[str] = Counter()
    programs = 0
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda one: outcomes(one[1], one[0], releases), enumerate(sources))
        for found in made:
            programs += bool(found)
            for what, outcome in found:
                counts[outcome.partition(":")[0]] += 1
                if outcome[0].isupper():
                    print(f"{what}: {outcome}", flush=True)  # noqa: T201
    print("\n".join(f"{count:6} {outcome}" for outcome, count in counts.most_common()))  # noqa: T201
    print(f"{programs} programs executed")  # noqa: T201
    return 1 if any(outcome[0].isupper() for outcome in counts) else 0


if __name__ == "__main__":
    raise SystemExit(main())
