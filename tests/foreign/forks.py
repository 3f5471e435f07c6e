"""Compare the output of forks of loaded tools with that of started tools for upstream's tests.

Every file of mlir/test is processed by mlir-opt and mlir-translate, and the output of mlir-translate by
clang. Exit status 1 if a fork that succeeds writes something else than the tool, or does not succeed if the
tool does.

usage: python tests/foreign/forks.py [--llvm=22] [--source=DIR] [--every=N]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from foreign.source_package import default_cache, fetch_tests, llvm_version  # noqa: E402
from msgspec import Struct  # noqa: E402

from mlir_offload.toolchain.fork_server import (  # noqa: E402
    MLIR_TRANSLATE,
    PROGRAM,
    SOURCE,
    ForkServers,
)
from mlir_offload.toolchain.process import Command, ProcessRunner  # noqa: E402

_OPT = ("--mlir-print-op-generic", "--allow-unregistered-dialect", "--split-input-file")
_TRANSLATE = ("--mlir-to-llvmir", "--mlir-disable-threading", "--split-input-file")
_CLANG = ("-c", "-O1", "-x", "ir", "-Wno-override-module")


class Comparison(Struct):
    """The tools, started and loaded, and their output directory."""

    tools: Path
    folder: Path
    started: ProcessRunner
    loaded: ProcessRunner
    forks_translate: bool
    """Whether mlir-opt can run the main() of mlir-translate, which requires libMLIR; some releases lack it."""

    def compare(self, number: int, path: Path) -> Iterator[tuple[str, str]]:
        """Yield the name of each tool and the result of the comparison."""
        yield "mlir-opt", self._judge("mlir-opt", _OPT, path, self.folder / f"{number}.mlir")
        made = self.folder / f"{number}.ll"
        if not self.forks_translate:
            return
        yield "mlir-translate", self._judge("mlir-translate", _TRANSLATE, path, made)
        if made.exists() and "; -----" not in made.read_text(errors="replace"):
            yield "clang", self._judge("clang", _CLANG, made, self.folder / f"{number}.o")

    def _judge(self, tool: str, options: tuple[str, ...], source: Path, output: Path) -> str:
        command = Command((str(self.tools / tool), *options, str(source), "-o", str(output)))
        done = self.started.run(command)
        expected = output.read_bytes() if output.exists() else None
        output.unlink(missing_ok=True)
        forked = self.loaded._run_fork(command)
        if done.returncode:
            return "both fail" if forked is None else "only the started tool fails"
        if forked is None:
            return "only the fork fails"
        made = output.read_bytes() if output.exists() else None
        same = (made, forked.stdout, forked.stderr) == (expected, done.stdout, done.stderr)
        return "equal" if same else "different"


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--llvm", type=int, default=22)
    parser.add_argument("--source", type=Path, help="an unpacked mlir/test")
    parser.add_argument("--every", type=int, default=1, help="take only every Nth file")
    options = parser.parse_args()
    tests = options.source or fetch_tests(
        llvm_version(options.llvm), default_cache(), with_all=True
    )
    tools = Path(f"/usr/lib/llvm-{options.llvm}/bin")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "library.so")
        clang = str(tools / "clang")
        subprocess.run((clang, "-w", "-shared", "-fPIC", SOURCE, "-o", library), check=True)
        opt = str(tools / "mlir-opt")
        entries = {opt: (opt, PROGRAM), clang: (clang, PROGRAM)}
        entries[str(tools / "mlir-translate")] = (opt, MLIR_TRANSLATE)
        loaded = ProcessRunner(ForkServers(library, entries))
        asked = Command((str(tools / "mlir-translate"), "--version"))
        forks_translate = loaded._run_fork(asked) is not None
        comparison = Comparison(tools, Path(folder), ProcessRunner(), loaded, forks_translate)
        paths = sorted(tests.rglob("*.mlir"))[:: options.every]
        with ThreadPoolExecutor(2) as pool:
            every = pool.map(lambda one: (one[1], list(comparison.compare(*one))), enumerate(paths))
            found = [(path, *one) for path, verdicts in every for one in verdicts]
        loaded.close()
    for path, tool, verdict in found:
        if verdict not in {"equal", "both fail"}:
            print(f"{path}: {tool}: {verdict}")  # noqa: T201
    counts = Counter((tool, verdict) for _, tool, verdict in found)
    for (tool, verdict), count in sorted(counts.items()):
        print(f"{tool}: {count} {verdict}")  # noqa: T201
    return 0 if {verdict for _, verdict in counts} <= {"equal", "both fail"} else 1


if __name__ == "__main__":
    sys.exit(main())
