"""Each device kind has one module per layer, and no other code tests for it."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import count
import pytest

from mlir_offload.driver.compile.kind_build import BUILDS
from mlir_offload.offload.kind_format import FORMATS
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.target import (
    DEVICE_KINDS,
    Kind,
    all_kinds,
    device_kind,
    kind_of_image,
    parse_offload_arch,
)
from mlir_offload.translate.kind_lowering import LOWERINGS

# The remaining tests for kinds; the number must only decrease.
MOST_KIND_TESTS = 5
MOST_LOCAL_IMPORTS = 33
MOST_ENTERED_MODULES = 89


@pytest.fixture(scope="module")
def modules() -> dict[Path, ast.Module]:
    return count.sources()


@pytest.mark.parametrize("kind", all_kinds())
def test_each_layer_has_one_module_for_a_kind(kind: Kind) -> None:
    for registry in (DEVICE_KINDS, FORMATS, LOWERINGS, BUILDS):
        assert importlib.util.find_spec(registry.module(kind)) is not None
    assert DEVICE_KINDS[kind].name is kind
    assert FORMATS[kind].name is kind
    assert LOWERINGS[kind].name is kind
    assert BUILDS[kind].name is kind


@pytest.mark.parametrize("kind", all_kinds())
def test_a_kind_reads_the_architecture_that_it_gives_as_an_example(kind: Kind) -> None:
    known = device_kind(kind)
    target = parse_offload_arch(known.example)
    assert (target.kind, target.triple, str(target)) == (kind, known.triple, known.example)
    assert kind_of_image(known.offload_kind, known.triple) is kind


def test_an_unknown_architecture_names_those_of_each_kind() -> None:
    with pytest.raises(UsageError, match="unknown offload architecture 'riscv'") as caught:
        parse_offload_arch("riscv")
    assert all(kind.arch_hint in caught.value.hint for kind in DEVICE_KINDS)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sm90", "sm_90"),
        ("SM_90a", "sm_90a"),
        ("compute_80", "sm_80"),
        ("GFX90A", "gfx90a"),
        ("gfx_1100", "gfx1100"),
        ("cpu", "host"),
        ("spirv", "spirv64"),
    ],
)
def test_an_architecture_that_is_spelled_otherwise_is_suggested(name: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_offload_arch(name)
    assert caught.value.hint == f"did you mean '{meant}'?"


def test_a_name_that_is_not_registered_is_not_a_kind() -> None:
    assert Kind("hip") is Kind.HIP
    with pytest.raises(ValueError, match="'vulkan' is not a device kind"):
        Kind("vulkan")
    assert kind_of_image("vulkan", "") is None


def test_hardly_anything_else_tests_for_kinds(modules: dict[Path, ast.Module]) -> None:
    assert len(count.kind_tests(modules)) <= MOST_KIND_TESTS


def test_imports_inside_functions_do_not_become_more(
    modules: dict[Path, ast.Module],
) -> None:
    assert len(count.local_imports(modules)) <= MOST_LOCAL_IMPORTS


def test_only_the_readers_match_ir_by_regular_expressions(modules: dict[Path, ast.Module]) -> None:
    assert count.patterns(modules) == []


@pytest.mark.llvm(22)
def test_modules_that_one_compilation_enters_do_not_become_more() -> None:
    assert count.entered_modules() <= MOST_ENTERED_MODULES


def test_folders_of_a_layer_form_a_chain(modules: dict[Path, ast.Module]) -> None:
    assert count.folder_cycles(count.folder_imports(modules)) == []


def test_the_script_finds_what_it_counts() -> None:
    text = "def f(kind):\n    import re\n    return kind is Kind.CUDA\n"
    modules = {Path("driver/x.py"): ast.parse(text)}
    assert count.kind_tests(modules) == ["driver/x.py:3"]
    assert count.local_imports(modules) == ["driver/x.py:2"]
    text = "import re\nX = re.compile(rb'^define [^@]*@')\nY = re.compile('error: ')\n"
    modules = {Path("driver/x.py"): ast.parse(text), Path("translate/y.py"): ast.parse(text)}
    assert count.patterns(modules) == ["driver/x.py:2", "translate/y.py:2", "translate/y.py:3"]
    graph: dict[str, dict[str, list[str]]] = {
        "a": {"b": []},
        "b": {"c": []},
        "c": {"b": []},
        "d": {"a": []},
    }
    assert count.folder_cycles(graph) == [frozenset({"b", "c"})]
