"""Who may import whom: driver -> translate -> offload -> toolchain, type-only imports included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("toolchain", "offload", "translate", "driver")
MODULES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _own(names: Iterator[str]) -> set[str]:
    return {name for name in names if name.split(".")[0] == "mlir_offload"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_its_own_layer_and_those_below(path: Path) -> None:
    layer = LAYERS.index(path.relative_to(ROOT).parts[0])
    allowed = LAYERS[: layer + 1]
    wrong = [
        name
        for name in _own(_imports(path))
        if len(name.split(".")) > 1 and name.split(".")[1] not in allowed
    ]
    assert wrong == []


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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_one_module_starts_programs_and_one_loads_llvm(path: Path) -> None:
    imported = {name.split(".")[0] for name in _imports(path)}
    assert ("subprocess" in imported) == (path == ROOT / "toolchain" / "process.py")
    assert "llvmlite" not in imported or path == ROOT / "offload" / "llvm_ir.py"


# What modules of translate/ may match by patterns, besides MLIR in translate/mlir.
PATTERNS = {
    "LLVM IR": (
        *("cpu/", "downgrade/", "spirv/", "amdgpu.py", "device.py", "device_ir.py", "hoisted_address.py"),
        *("host/module.py", "ir_tokens.py", "kind/", "kind_lowering.py", "same_kernels.py", "sanitizer.py"),
    ),
    "messages of tools": ("diagnostics.py", "tool_message.py"),
    "formats of printf": ("fixup/limit.py",),
    "inline assembly": ("pipelines.py",),
    # The rows of scripts in input_pipelines.yaml are patterns too.
    "lists of passes, and what occurs in a source": ("input_pipeline.py",),
}  # fmt: skip


def test_only_one_package_matches_mlir_text_by_patterns() -> None:
    translate = ROOT / "translate"
    allowed = ("mlir/", *(one for listed in PATTERNS.values() for one in listed))
    found = {
        str(path.relative_to(translate))
        for path in MODULES
        if path.is_relative_to(translate) and "re" in set(_imports(path))
    }
    assert {name for name in found if not name.startswith(allowed)} == set()


def test_mlir_is_read_by_one_package() -> None:
    with_brackets = {
        path.relative_to(ROOT)
        for path in MODULES
        if "mlir_offload.toolchain.syntax" in set(_imports(path))
    }
    assert with_brackets == {Path("translate/mlir/syntax.py"), Path("offload/ir_syntax.py")}
