"""Learn the passes and pass options that the mlir-opt of an unknown build supports."""

from __future__ import annotations

from collections.abc import Iterator

from mlir_offload.offload.calibrate.probe import CannotLearnError, Learned, ProbeBench
from mlir_offload.toolchain.learned_row import MissingPassesRow
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.translate.pipelines import recipe_options, recipe_passes

_LISTED = pattern(r"(?m)^( +)--([\w-]+)")
_PASS_INDENT = 6


def learn_recipe(bench: ProbeBench) -> Learned:
    """Learn from `mlir-opt --help` which passes of the nearest release's pipeline are missing."""
    text = bench.output("mlir-opt", ("--help",))
    there = {word.partition("=")[0] for word in text.split() if word.startswith("--")}
    if "--canonicalize" not in there:
        msg = "mlir-opt does not list its passes"
        raise CannotLearnError(msg)
    missing = (name for name in recipe_passes(bench.base) if f"--{name}" not in there)
    return Learned([MissingPassesRow(tuple(missing))], list(_gone_options(text, bench.base)))


def _gone_options(text: str, base: int) -> Iterator[str]:
    """Yield a message for each pass option of the pipeline that no longer exists; mlir-opt rejects its use."""
    known = _options(text)
    for name, option in recipe_options(base):
        if option not in known.get(name, {option}):
            listed = ", ".join(sorted(known[name])) or "none"
            yield f"option {option} of the pass {name}, which has other options: {listed}"


def _options(text: str) -> dict[str, set[str]]:
    """Return the options of each pass. In the help they follow the pass, with more indentation."""
    found: dict[str, set[str]] = {}
    own: set[str] = set()
    for indent, name in _LISTED.findall(text):
        if len(indent) == _PASS_INDENT:
            own = found[name] = set()
        elif len(indent) > _PASS_INDENT:
            own.add(name)
    return found
