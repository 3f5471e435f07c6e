"""Passes and options of pipelines, learned from the help of an mlir-opt."""

from __future__ import annotations

import subprocess

import pytest

from mlir_offload.offload.calibrate.probe import ProbeBench
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.learned_row import AsyncProgramRow, SubgroupReduceProgramRow
from mlir_offload.toolchain.tables import LearnedRelease, forget_learned, learn_release
from mlir_offload.translate.calibrate import learn_recipe
from mlir_offload.translate.pipelines import load_recipe, recipe_options


class _Bench:
    """What learn_recipe asks, answered by the help of a real mlir-opt with a change."""

    base = 22

    def __init__(self, old: str, new: str) -> None:
        self._change = (old, new)

    def output(self, name: str, arguments: tuple[str, ...]) -> str:
        program = f"/usr/lib/llvm-{self.base}/bin/{name}"
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.replace(*self._change)


def _learn(old: str, new: str) -> list[str]:
    bench: ProbeBench = _Bench(old, new)  # type: ignore[assignment]  # it has what is asked
    return learn_recipe(bench).assumed


def test_the_options_of_a_recipe_are_those_of_its_passes() -> None:
    options = recipe_options(22)
    assert ("convert-gpu-to-nvvm", "has-redux") in options
    assert ("convert-gpu-to-rocdl", "chipset") in options


@pytest.mark.llvm(22)
def test_an_option_that_is_gone_is_named_with_those_that_the_pass_has() -> None:
    assert _learn("", "") == []
    (line,) = _learn("--has-redux ", "--redux ")
    assert line.startswith(
        "option has-redux of the pass convert-gpu-to-nvvm, which has other options: "
    )
    assert "redux" in line.partition(": ")[2].split(", ")


def test_a_part_that_a_build_lowers_wrongly_is_refused_where_a_program_needs_it() -> None:
    rows = (
        SubgroupReduceProgramRow({"results": "its result 0 is 1"}),
        AsyncProgramRow({"lowering": "pass X fails"}),
    )
    learn_release(LearnedRelease("24.0.0git", 24, 22, "identity", rows))
    try:
        recipe = load_recipe(24)
        needs = frozenset({"subgroup_reduce"})
        assert recipe.host_pipeline(uses_async=False, debug=False)
        assert recipe.device_pipeline(needs=frozenset(), redux=False, debug=False)
        with pytest.raises(CompatibilityError, match=r"\(async\): pass X fails"):
            recipe.host_pipeline(uses_async=True, debug=False)
        with pytest.raises(CompatibilityError, match=r"\(subgroup_reduce\): its result 0 is 1"):
            recipe.device_pipeline(needs=needs, redux=False, debug=False)
        with pytest.raises(CompatibilityError, match="subgroup_reduce"):
            recipe.amdgpu_pipeline(needs=needs, chip="gfx90a", debug=False)
    finally:
        forget_learned()
