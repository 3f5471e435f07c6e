"""Allowed imports: driver -> translate -> offload -> toolchain, including type-only imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("toolchain", "offload", "translate", "driver")
OTHERS_AT_THE_TOP = {"docs", "tests", "pyproject.toml", "README.md", "Makefile", "LICENSE"}
# Build outputs and installed files, which .gitignore lists.
BUILT = ("build", "dist", "*.egg-info", "__pycache__")
MODULES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


@cache
def _imports(path: Path) -> frozenset[str]:
    return frozenset(_all_imports(path))


def _all_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module or ""
            # A module that is loaded on first use is imported as an attribute of its package.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _own(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.split(".")[0] == "mlir_offload"}


def test_a_module_imports_only_its_own_layer_and_those_below() -> None:
    wrong = [
        (str(path.relative_to(ROOT)), name)
        for path in MODULES
        for name in _own(_imports(path))
        if len(name.split(".")) > 1 and name.split(".")[1] not in _allowed(path)
    ]
    assert wrong == []


def _allowed(path: Path) -> tuple[str, ...]:
    return LAYERS[: LAYERS.index(path.relative_to(ROOT).parts[0]) + 1]


def test_no_modules_import_each_other() -> None:
    graph = {
        "mlir_offload." + ".".join(path.relative_to(ROOT).with_suffix("").parts): _own(
            _imports(path)
        )
        for path in MODULES
    }
    done: set[str] = set()

    def visit(name: str, stack: tuple[str, ...]) -> None:
        assert name not in stack, " -> ".join((*stack, name))
        if name in done:
            return
        for other in sorted(graph.get(name, ())):
            visit(other, (*stack, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_only_one_module_starts_programs_and_one_loads_llvm() -> None:
    assert _importers("subprocess") == {Path("toolchain/process.py")}
    assert _importers("llvmlite") <= {Path("offload/llvm_ir.py")}


def _importers(package: str) -> set[Path]:
    return {
        path.relative_to(ROOT)
        for path in MODULES
        if package in {name.split(".")[0] for name in _imports(path)}
    }


def test_mlir_is_read_by_one_package() -> None:
    with_brackets = {
        path.relative_to(ROOT)
        for path in MODULES
        if "mlir_offload.toolchain.pattern.Syntax" in _imports(path)
    }
    assert with_brackets == {Path("translate/mlir/syntax.py"), Path("offload/ir_syntax.py")}


def test_the_top_of_the_tree_holds_nothing_else() -> None:
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    others = {name for name in found if not any(fnmatchcase(name, one) for one in BUILT)}
    assert others == {*LAYERS, *OTHERS_AT_THE_TOP}
