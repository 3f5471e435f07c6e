"""The step that writes a rule for Make."""

from __future__ import annotations

from pathlib import Path

import click

from mlir_offload.driver.step.group import PATH, output_option, read_text, step, write_text
from mlir_offload.driver.system.depfile import read_prerequisites, render_rule


@step.command("depfile")
@click.argument("sources", nargs=-1)
@click.option("--target", "targets", multiple=True, required=True, help="as it stands in the rule")
@click.option("--other", "others", multiple=True, help="what was read besides the sources")
@click.option("--from-clang", "rules", type=PATH, multiple=True, help="a rule with more of it")
@click.option("--phony", is_flag=True, help="give each of these a rule of its own, as -MP")
@output_option
def _depfile(
    sources: tuple[str, ...],
    targets: tuple[str, ...],
    others: tuple[str, ...],
    rules: tuple[Path, ...],
    *,
    phony: bool,
    output: Path,
) -> None:
    """Write the rule that tells Make what the targets depend on."""
    included = [name for rule in rules for name in read_prerequisites(read_text(rule))]
    write_text(output, render_rule(targets, sources, (*others, *included), phony=phony))
