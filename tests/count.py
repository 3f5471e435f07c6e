"""Count what makes a change expensive: lines, tests of device kinds, imports in functions, cycles of folders.

usage: python tests/count.py [--compile] [--coverage]

`--compile` compiles an example with `-c`, and counts the modules of the driver that it enters. `--coverage` runs the
unit tests, and prints how many lines of each folder of the driver they execute in their own process; it requires the
package `coverage`.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("toolchain", "offload", "translate", "driver")
PACKAGE = "mlir_offload"
KINDS = frozenset({"CUDA", "HIP", "OPENMP", "SYCL"})
# The modules that know a device kind each.
DEVICE_FOLDER = "kind"
# Who reads LLVM IR and MLIR, by whatever means.
READERS = (
    *("toolchain/pattern.py", "offload/ir_syntax.py", "translate/ir_tokens.py", "translate/mlir/"),
    # Its rows in ir_text.yaml are patterns, tried outside of strings and comments.
    "toolchain/skew/text.py",
)  # fmt: skip
# Whose modules deal with the text of LLVM IR and MLIR.
TEXT_FOLDERS = ("translate", "offload/host")
# Those of them that match other languages.
OTHER_LANGUAGES = (
    *("translate/diagnostics.py", "translate/tool_message.py"),  # messages of tools
    *("translate/legalize/unsupported_ops.py", "translate/spirv/printf.py"),  # formats of printf
    *("translate/pipelines.py", "translate/input_pipeline.py"),  # lists of passes, what sources contain
    "offload/host/mangling.py",  # names of C++
)  # fmt: skip
# What patterns elsewhere contain that are for LLVM IR.
IR_MARKS = (
    *("define ", "declare ", "target triple", "datalayout", "addrspace", "= alloca", "icmp ", "^!", "!\\{"),
    *("= type", "i32 ", "ptr ", "attributes #", "constant ", "@mgpu", "@(mgpu", "= and ", "call "),
)  # fmt: skip
_COMPILE = """\
import sys
from mlir_offload.driver import cli

def _leave(status):
    names = [name for name in sys.modules if name.split(".")[0] == "mlir_offload"]
    sys.stdout.write(str(len(names)))
    sys.stdout.flush()
    sys.exit(status)

cli._leave = _leave
cli.main()
"""


def sources() -> dict[Path, ast.Module]:
    """Return the modules of the four layers, by their paths from the root."""
    paths = (path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py")))
    return {
        path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"))
        for path in paths
        if "cmake" not in path.parts
    }


def lines_and_files() -> dict[str, tuple[int, int]]:
    """Return the lines and the files of each folder: Python, C, tables and CMake, without tests."""
    found: dict[str, tuple[int, int]] = {}
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*")):
            if path.suffix in {".py", ".c", ".h", ".yaml", ".cmake"}:
                name = str(path.parent.relative_to(ROOT))
                lines, files = found.get(name, (0, 0))
                count = len(path.read_text(encoding="utf-8").splitlines())
                found[name] = lines + count, files + 1
    return found


def kind_tests(modules: Mapping[Path, ast.Module]) -> list[str]:
    """Return where a device kind is named, outside the modules that know one."""
    return [
        f"{path}:{node.lineno}"
        for path, module in modules.items()
        if path.parent.name != DEVICE_FOLDER
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Kind"
        and node.attr in KINDS
    ]


def local_imports(modules: Mapping[Path, ast.Module]) -> list[str]:
    """Return the imports inside functions."""
    return sorted(
        {
            f"{path}:{node.lineno}"
            for path, module in modules.items()
            for function in ast.walk(module)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
    )


def patterns(modules: Mapping[Path, ast.Module]) -> list[str]:
    """Return the calls of `re` on LLVM IR and MLIR, but for those of their readers."""
    return [
        f"{path}:{node.lineno}"
        for path, module in modules.items()
        if not str(path).startswith((*READERS, *OTHER_LANGUAGES))
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and (str(path).startswith(TEXT_FOLDERS) or _is_for_ir(node))
    ]


def _is_for_ir(call: ast.Call) -> bool:
    """Say whether a call gives a pattern in which something of LLVM IR is."""
    constants = (node.value for node in ast.walk(call) if isinstance(node, ast.Constant))
    texts = (text.decode() if isinstance(text, bytes) else text for text in constants)
    return any(isinstance(text, str) and mark in text for text in texts for mark in IR_MARKS)


def _imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def folder_imports(modules: Mapping[Path, ast.Module]) -> dict[str, dict[str, list[str]]]:
    """Return which folders of a layer the modules of each import from, with the imports."""
    folders = {f"{PACKAGE}.{'.'.join(path.with_suffix('').parts)}": path.parent for path in modules}
    graph: dict[str, dict[str, list[str]]] = {str(path.parent): {} for path in modules}
    for path, module in modules.items():
        for name in _imported(module):
            folder = folders.get(name)
            if folder is None or folder == path.parent or folder.parts[0] != path.parts[0]:
                continue
            graph[str(path.parent)].setdefault(str(folder), []).append(f"{path} -> {name}")
    return graph


def folder_cycles(graph: Mapping[str, Mapping[str, object]]) -> list[frozenset[str]]:
    """Return the groups of folders that import each other."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        left = [start]
        while left:
            for name in graph.get(left.pop(), ()):
                if name not in found:
                    found.add(name)
                    left.append(name)
        return found

    all_reached = {name: reached(name) for name in graph}
    groups = {
        frozenset({name, *(other for other in names if name in all_reached[other])})
        for name, names in all_reached.items()
        if name in names
    }
    return sorted(groups, key=sorted)


def entered_modules() -> int:
    """Return how many modules of the driver one `-c` enters."""
    with tempfile.TemporaryDirectory() as folder:
        program = ROOT / "docs" / "examples" / "saxpy.mlir"
        words = ("-c", str(program), "--offload-arch=sm_90", "-o", f"{folder}/saxpy.o")
        environment = {**os.environ, "PYTHONPATH": str(ROOT / ".importroot")}
        argv = (sys.executable, "-c", _COMPILE, *words)
        ran = subprocess.run(argv, check=True, capture_output=True, text=True, env=environment)
    return int(ran.stdout)


def unit_coverage() -> list[str]:
    """Return the lines of the driver that the unit tests execute, as rows for `driver/cli.py` and each folder."""
    with tempfile.TemporaryDirectory() as folder:
        data, report = f"--data-file={folder}/data", f"{folder}/report.json"
        coverage = (sys.executable, "-m", "coverage")
        tests = ("-m", "pytest", "--quiet", "tests/unit")
        run = (*coverage, "run", data, f"--source={ROOT / 'driver'}", *tests)
        subprocess.run(run, check=True, cwd=ROOT, stdout=sys.stderr)
        subprocess.run((*coverage, "json", "-q", data, "-o", report), check=True, cwd=ROOT)
        files = json.loads(Path(report).read_text(encoding="utf-8"))["files"]
    counts: dict[str, list[int]] = {}
    for name, file in files.items():
        rows = (name,) if name == "driver/cli.py" else (str(Path(name).parent),)
        for row in (*rows, "all of it"):
            count = counts.setdefault(row, [0, 0])
            count[0] += file["summary"]["covered_lines"]
            count[1] += file["summary"]["num_statements"]
    return [
        f"{100 * covered / lines:6.1f} % of {lines:6} statements  {name}"
        for name, (covered, lines) in sorted(counts.items())
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--compile", action="store_true", help="count the modules that -c enters")
    parser.add_argument("--coverage", action="store_true", help="measure the unit tests")
    arguments = parser.parse_args()
    table, modules = lines_and_files(), sources()
    total = tuple(map(sum, zip(*table.values(), strict=True)))
    rows = [f"{n:7} lines {m:4} files  {name}" for name, (n, m) in (*table.items(), ("all", total))]
    counts = {
        "device kinds named outside their modules": len(kind_tests(modules)),
        "imports inside functions": len(local_imports(modules)),
        "folders that import each other": sum(map(len, folder_cycles(folder_imports(modules)))),
        "calls of re on IR outside the readers": len(patterns(modules)),
    }
    if arguments.compile:
        counts["modules entered by one -c"] = entered_modules()
    rows += [f"{count:7} {name}" for name, count in counts.items()]
    rows += unit_coverage() if arguments.coverage else []
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
