"""Which passes of a recipe the mlir-opt of an unknown build has."""

from __future__ import annotations

from mlir_offload.offload.calibrate.probe import CannotLearnError, Learned, ProbeBench
from mlir_offload.toolchain.learned_row import MissingPassesRow
from mlir_offload.translate.pipelines import recipe_passes


def learn_recipe(bench: ProbeBench) -> Learned:
    """Learn which passes of the nearest release's recipe are not there, of the help of mlir-opt."""
    text = bench.output("mlir-opt", ("--help",))
    there = {word.partition("=")[0] for word in text.split() if word.startswith("--")}
    if "--canonicalize" not in there:
        msg = "mlir-opt does not list its passes"
        raise CannotLearnError(msg)
    missing = (name for name in recipe_passes(bench.base) if f"--{name}" not in there)
    return Learned([MissingPassesRow(tuple(missing))])
