"""Compile, link and run upstream's GPU programs for every target, and compare with the recorded table.

Exit status 1 if a step that succeeded no longer does. FileCheck and MLIR's runner libraries, if not
installed, are unpacked from their packages into a cache. Sparse matrices require cuSPARSE: pip install
nvidia-cusparse nvidia-cusparselt-cu13, and --cuda-path= for that toolkit.

usage: python tests/foreign/run.py [--llvm=22] [--only=TEXT] [--target=NAME] [--update]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from foreign.binary_package import find_filecheck, find_runner_libraries  # noqa: E402
from foreign.build import DEVICE_FUNCTION_TARGETS, TARGETS, Setting, try_program  # noqa: E402
from foreign.device_function import find_device_functions  # noqa: E402
from foreign.program import Program, find_programs  # noqa: E402
from foreign.result import Result  # noqa: E402
from foreign.source_package import default_cache, fetch_tests, llvm_version  # noqa: E402
from foreign.table import compare, page_path, read_page, render_page  # noqa: E402

FOLDERS = ("GPU", "Dialect/SparseTensor/GPU", "Dialect/Vector/GPU", "Dialect/XeGPU", "Dialect/XeVM")
# Directories below mlir/test with programs that upstream does not link.
_UNLINKED = ("Dialect/SparseTensor/GPU",)
_FILL = Path(__file__).with_name("fill.c")


def main() -> int:
    """Return the exit status."""
    options = _options()
    version = llvm_version(options.llvm)
    tests = (options.source or fetch_tests(version, default_cache())).resolve()
    with tempfile.TemporaryDirectory() as folder:
        programs = [p for p in _find_all(tests, Path(folder)) if options.only in p.name]
        targets = [target for target in TARGETS if options.target in {"", target}]
        results = _try_all(programs, targets, options)
    page = page_path(ROOT, options.llvm)
    recorded = read_page(page)
    worse, other = compare(recorded, results)
    for line in (*worse, *other):
        print(line)  # noqa: T201
    if options.update:
        merged = recorded | {result.key: result for result in results}
        page.write_text(render_page(version, merged.values()), encoding="utf-8")
    print(f"{len(results)} results, {len(worse)} worse, {len(other)} different otherwise")  # noqa: T201
    return 1 if worse else 0


def _find_all(tests: Path, folder: Path) -> list[Program]:
    linked = find_programs(tests / "Integration", FOLDERS)
    return [*linked, *find_programs(tests, _UNLINKED), *find_device_functions(tests, folder)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--llvm", type=int, default=22)
    parser.add_argument("--only", default="", help="only programs whose name contains this text")
    parser.add_argument("--target", default="", choices=("", *TARGETS))
    parser.add_argument("--source", type=Path, help="an unpacked mlir/test")
    parser.add_argument("--cuda-path", help="a CUDA toolkit with cuSPARSE and cuSPARSELt")
    parser.add_argument("--update", action="store_true", help="write what was found into the page")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


def _try_all(
    programs: list[Program], targets: list[str], options: argparse.Namespace
) -> list[Result]:
    with tempfile.TemporaryDirectory() as work:
        setting = _setting(options, Path(work))

        def try_one(number: int, program: Program, target: str) -> Result:
            folder = Path(work) / str(number)
            folder.mkdir()
            result = try_program(program, target, setting, folder)
            print(f"{result.program} {result.target}: {result.reason or 'ok'}", file=sys.stderr)  # noqa: T201
            return result

        pairs = [
            (program, target)
            for program, target in product(programs, targets)
            if not program.is_device or target in DEVICE_FUNCTION_TARGETS
        ]
        with ThreadPoolExecutor(options.jobs) as pool:
            return list(pool.map(try_one, range(len(pairs)), *zip(*pairs, strict=True)))


def _setting(options: argparse.Namespace, work: Path) -> Setting:
    prefix = Path(f"/usr/lib/llvm-{options.llvm}")
    fill = work / "fill.o"
    clang = str(prefix / "bin/clang")
    subprocess.run((clang, "-O1", "-fPIC", "-c", str(_FILL), "-o", str(fill)), check=True)
    libraries = find_runner_libraries(options.llvm, default_cache())
    cuda = (f"--cuda-path={options.cuda_path}",) if options.cuda_path else ()
    filecheck = find_filecheck(options.llvm, default_cache())
    return Setting(str(options.llvm), (str(fill), f"-L{libraries}"), filecheck, cuda)


if __name__ == "__main__":
    sys.exit(main())
