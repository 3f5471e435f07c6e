"""The step that writes a dependency file for Make."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step.step import Step, read_text, write_text
from mlir_offload.driver.system import depfile


class Depfile(Step, frozen=True, kw_only=True, tag="depfile"):
    """Write the Make rule with the dependencies of the targets."""

    sources: tuple[str, ...] = ()
    made: tuple[str, ...]
    others: tuple[str, ...] = ()
    rules: tuple[Path, ...] = ()
    phony: bool = False
    output: Path

    def _do(self) -> None:
        included = [
            name for rule in self.rules for name in depfile.read_prerequisites(read_text(rule))
        ]
        rule = depfile.render_rule(
            self.made, self.sources, (*self.others, *included), phony=self.phony
        )
        write_text(self.output, rule)
