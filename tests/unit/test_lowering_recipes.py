"""The pass pipelines in the table."""

from __future__ import annotations

import re

import pytest

from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.translate.pipelines import (
    load_faults,
    load_printing,
    load_recipe,
    load_refusals,
)

RELEASES = [19, 20, 21, 22, 23]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("needs", [frozenset(), frozenset({"subgroup_reduce", "redux"})])
@pytest.mark.parametrize("debug", [False, True])
def test_no_placeholder_is_left_in_a_pipeline(
    release: int, needs: frozenset[str], *, debug: bool
) -> None:
    recipe = load_recipe(release)

    for pipeline in (
        f"builtin.module({','.join(recipe.common_passes(uses_nvgpu=debug))})",
        recipe.device_pipeline(needs=needs, redux=False, debug=debug),
        recipe.device_pipeline(needs=needs, redux=True, debug=debug),
        recipe.host_pipeline(uses_async=debug, debug=debug),
    ):
        assert "$" not in pipeline
        assert ",," not in pipeline
        assert pipeline.startswith("builtin.module(")
        assert pipeline.count("(") == pipeline.count(")")


def test_a_pass_is_there_only_where_it_is_needed() -> None:
    recipe = load_recipe(22)
    plain = recipe.device_pipeline(needs=frozenset(), redux=False, debug=False)
    reducing = recipe.device_pipeline(
        needs=frozenset({"subgroup_reduce"}), redux=False, debug=False
    )

    assert "subgroup-reduce" not in plain
    assert "subgroup-reduce" in reducing
    assert "arith-expand" not in plain
    assert "has-redux=false" in plain
    assert "async" not in recipe.host_pipeline(uses_async=False, debug=False)
    assert "nvgpu" not in ",".join(recipe.common_passes(uses_nvgpu=False))


@pytest.mark.parametrize(
    ("needs", "passes"),
    [
        ((), ()),
        (("matrix",), ()),
        (("nvgpu",), ("convert-nvgpu-to-nvvm",)),
        # The pass of nvgpu rejects loops over matrices.
        (("nvgpu", "matrix"), ("convert-scf-to-cf", "convert-nvgpu-to-nvvm")),
    ],
)
def test_loops_over_matrices_are_kept_from_the_pass_that_refuses_them(
    needs: tuple[str, ...], passes: tuple[str, ...]
) -> None:
    pipeline = load_recipe(22).device_pipeline(needs=frozenset(needs), redux=False, debug=False)
    before = pipeline.partition("convert-linalg-to-loops")[0].partition("gpu.module(")[2]
    assert tuple(name for name in before.split(",") if name) == passes


def test_a_release_older_than_every_recipe_is_refused() -> None:
    with pytest.raises(CompatibilityError, match="LLVM 16") as caught:
        load_recipe(16)

    assert "mlir-19-tools" in caught.value.hint


def test_locations_are_printed_and_scopes_are_not_local() -> None:
    assert "--mlir-print-debuginfo" in load_printing()
    assert not any("local-scope" in option for option in load_printing())


def test_a_fault_ends_with_the_release_that_cured_it() -> None:
    assert "assert_outside_module" in load_faults(19)
    assert "assert_outside_module" not in load_faults(22)


@pytest.mark.parametrize("side", ["host", "device"])
def test_every_refusal_says_what_to_do(side: str) -> None:
    refusals = load_refusals("host" if side == "host" else "device")

    assert refusals
    assert all(refusal.message and refusal.hint for refusal in refusals)
    for refusal in refusals:
        re.compile(refusal.assembly)
