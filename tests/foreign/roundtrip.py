"""Parse the output of mlir-opt for each upstream test, print it again, and compare.

If mlir-opt splits a file into parts, every part is compared. Files that it rejects, such as those of the test
dialect, which no distribution contains, are only counted. Exit status 1 if a part changes.

usage: python tests/foreign/roundtrip.py [--llvm=22] [--source=DIR]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from foreign.source_package import default_cache, fetch_tests, llvm_version  # noqa: E402

from mlir_offload.toolchain.errors import ToolFailedError  # noqa: E402
from mlir_offload.translate.mlir.module import parse_module  # noqa: E402
from mlir_offload.translate.mlir.operation import Operation  # noqa: E402

_OPTIONS = (
    "--mlir-print-op-generic",
    "--mlir-print-debuginfo",
    "--allow-unregistered-dialect",
    "--verify-each=false",
    "--split-input-file",
)
_SEPARATOR = "// -----\n"
_SECONDS = 60


def main() -> int:
    """Return the exit status."""
    options = _options()
    version = llvm_version(options.llvm)
    tests = options.source or fetch_tests(version, default_cache(), with_all=True)
    paths = sorted(tests.rglob("*.mlir"))
    tool = f"/usr/lib/llvm-{options.llvm}/bin/mlir-opt"
    with ThreadPoolExecutor(options.jobs) as pool:
        printed = pool.map(lambda path: _printed(tool, path), paths)
        parts = [(path, part) for path, texts in zip(paths, printed, strict=True) for part in texts]
    changed = [f"{path}: {reason}" for path, part in parts if (reason := _difference(part))]
    for line in changed:
        print(line)  # noqa: T201
    files, lines = len({path for path, _ in parts}), sum(part.count("\n") for _, part in parts)
    start = time.process_time()
    for _, part in parts:
        parse_module(part).render()
    spent = (time.process_time() - start) * 1e6 / max(1, lines)
    print(  # noqa: T201
        f"{len(paths)} files, {files} printed in {len(parts)} parts of {lines} lines, "
        f"{len(changed)} changed, {spent:.1f} ms for 1,000 lines"
    )
    return 1 if changed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--llvm", type=int, default=22)
    parser.add_argument("--source", type=Path, help="an unpacked mlir/test")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


def _printed(tool: str, path: Path) -> Iterator[str]:
    """Return the modules that mlir-opt prints for a file."""
    try:
        done = subprocess.run(
            (tool, *_OPTIONS, str(path)), capture_output=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return iter(())
    text = done.stdout.decode(errors="surrogateescape")
    return (part for part in text.split(_SEPARATOR) if part.strip())


def _difference(text: str) -> str:
    """Return the first difference between the text and its printed form; empty if there is none."""
    try:
        module = parse_module(text)
        for operation in (module.operation, *module.operation.walk_inside()):
            _read_all(operation)
        made = module.render()
    except (ToolFailedError, ValueError) as error:
        return str(error)
    pairs = zip(text.split("\n"), made.split("\n"), strict=False)
    return next((f"{old}\n  became {new}" for old, new in pairs if old != new), "")


def _read_all(operation: Operation) -> None:
    """Parse all parts of an operation, so that printing uses the parsed form."""
    arguments = [one for region in operation.regions for block in region.blocks for one in block.arguments]  # fmt: skip
    if not all((one.name.startswith("%") and one.type) for one in arguments):
        msg = f"the arguments of a block of {operation.name}"
        raise ValueError(msg)
    if len(operation.operand_names) != len(operation.operand_types):
        msg = f"operands and types of {operation.name}"
        raise ValueError(msg)
    if len(operation.result_names) != len(operation.result_types):
        msg = f"results and types of {operation.name}"
        raise ValueError(msg)


if __name__ == "__main__":
    sys.exit(main())
