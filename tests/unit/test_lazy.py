"""Modules that are loaded when a name in them is first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlir_offload.toolchain import load_on_use

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("toolchain", "offload", "translate", "driver")
PACKAGES = [
    path
    for layer in LAYERS
    for path in sorted((ROOT / layer).rglob("__init__.py"))
    if path.parent.name != "root"
]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Write a package whose module fails where it is loaded twice, and return its name."""
    folder = tmp_path / "mo_lazy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from mlir_offload.toolchain import load_on_use\nload_on_use(__name__)\n"
    )
    (folder / "costly.py").write_text(
        "import sys\nassert not hasattr(sys, 'costly')\nanswer = 42\n"
    )
    (folder / "user.py").write_text(
        "from mo_lazy_package import costly\ndef ask(): return costly.answer\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield folder.name
    for name in [name for name in sys.modules if name.startswith(folder.name)]:
        del sys.modules[name]


def test_a_module_of_a_package_is_loaded_when_a_name_in_it_is_used(package: str) -> None:
    user = __import__(f"{package}.user", fromlist=["ask"])
    assert f"{package}.costly" not in sys.modules
    assert user.ask() == 42
    assert f"{package}.costly" in sys.modules


def test_a_name_that_is_replaced_is_replaced_for_all_who_use_the_module(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = __import__(f"{package}.user", fromlist=["ask"])
    monkeypatch.setattr(user.costly, "answer", 7)
    assert sys.modules[f"{package}.costly"].answer == 7
    assert user.ask() == 7


def test_what_is_no_module_of_a_package_is_an_error_when_it_is_used(package: str) -> None:
    loaded = __import__(package)
    assert not hasattr(loaded, "__wrapped__")
    with pytest.raises(ModuleNotFoundError, match="missing"):
        _ = loaded.missing.answer
    with pytest.raises(AttributeError, match="missing"):
        _ = loaded.costly.missing


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_every_package_loads_its_modules_on_use(path: Path) -> None:
    calls = [
        node.value
        for node in _body(path)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ]
    assert [ast.unparse(call) for call in calls] == [f"{load_on_use.__name__}(__name__)"]


def test_no_package_but_the_one_that_says_how_defines_anything() -> None:
    defining = [
        str(path.relative_to(ROOT))
        for path in PACKAGES
        if any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in _body(path))
    ]
    assert defining == ["toolchain/__init__.py"]


def _body(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text()).body


def test_the_command_line_loads_no_subcommand_before_it_is_called() -> None:
    code = "import sys, mlir_offload.driver.cli; print(*sys.modules, sep='\\n')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert "mlir_offload.driver.cli" in loaded
    assert loaded.isdisjoint(
        {"click", "rich", "yaml", "llvmlite", "mlir_offload.driver.build.subcommand"}
    )
