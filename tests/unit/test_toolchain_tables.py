"""The tables of installed software: errors for invalid ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from mlir_offload.toolchain.cuda import load_cuda_table, parse_cuda_table
from mlir_offload.toolchain.rocm import load_rocm_table, parse_rocm_table
from mlir_offload.toolchain.tables import load_table
from mlir_offload.toolchain.tool import Role, load_llvm_table, parse_llvm_table

Table = dict[str, Any]


def shipped(name: str) -> Table:
    return copy.deepcopy(load_table("mlir_offload.toolchain", name))


@pytest.mark.parametrize("load", [load_llvm_table, load_cuda_table, load_rocm_table])
def test_the_tables_that_ship_are_right(load: Callable[[], object]) -> None:
    assert load() is load()


def add_tool(**row: object) -> Callable[[Table], None]:
    return lambda table: table["tools"].append(row)


def set_key(key: str, value: object) -> Callable[[Table], None]:
    return lambda table: table.update({key: value})


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (add_tool(name="opt", package="llvm-{major}"), "tool 'opt' twice"),
        (add_tool(name="new", package="llvm"), "tool 'new': needs a package with {major}"),
        (add_tool(name="new", package="llvm-{major}", sice=19), "tool 'new'"),
        (add_tool(name="new", package="llvm-{major}", role="dance"), "dance"),
        (set_key("anchors", ["clang", "flang"]), "anchor 'flang' is not a tool"),
        (set_key("places", "/usr"), "places must be a list"),
        (set_key("recommended", 17), "the recommended release 17 cannot play every role"),
        (set_key("roles", {"lower": {"since": 19}}), "role link has no row"),
    ],
)
def test_a_broken_table_of_llvm_is_refused(spoil: Callable[[Table], None], complaint: str) -> None:
    table = shipped("llvm_tools")
    spoil(table)
    with pytest.raises(ValueError, match=complaint):
        parse_llvm_table(table)


def test_packages_of_libomptarget_out_of_order_are_refused() -> None:
    table = shipped("llvm_tools")
    table["libomptarget"]["packages"].reverse()
    with pytest.raises(ValueError, match="not in the order of releases"):
        parse_llvm_table(table)


def test_a_tool_is_needed_from_the_release_on_that_needs_it() -> None:
    table = load_llvm_table()
    assert "clang-nvlink-wrapper" not in {row.name for row in table.needed(Role.LINK, 18)}
    assert "clang-nvlink-wrapper" in {row.name for row in table.needed(Role.LINK, 19)}


def test_an_optional_tool_is_used_and_installed_but_not_needed() -> None:
    table = load_llvm_table()
    assert "ld.lld" in {row.name for row in table.serving(Role.LINK, 22)}
    assert "ld.lld" not in {row.name for row in table.needed(Role.LINK, 22)}
    assert "lld-22" in table.packages(22, [Role.LINK])


def test_asking_for_a_program_that_no_row_names_is_a_bug() -> None:
    with pytest.raises(ValueError, match="no row for the program 'gcc'"):
        load_llvm_table().tool("gcc")


def test_a_table_of_cuda_without_a_part_is_refused() -> None:
    table = shipped("cuda")
    del table["parts"][0]
    with pytest.raises(ValueError, match="parts must be"):
        parse_cuda_table(table)


def test_a_table_of_rocm_without_places_is_refused() -> None:
    table = shipped("rocm")
    table["places"] = []
    with pytest.raises(ValueError, match="places must be a list"):
        parse_rocm_table(table)
