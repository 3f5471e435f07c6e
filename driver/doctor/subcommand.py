"""The subcommand `doctor`: which combinations work, which tools are not what they report, what to install."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from mlir_offload.driver.doctor import html as doctor_html
from mlir_offload.driver.doctor import json as doctor_json
from mlir_offload.driver.doctor import report as doctor_report
from mlir_offload.driver.doctor.examination import Examination
from mlir_offload.driver.doctor.plan import known_kinds
from mlir_offload.driver.option.checks import OutputFile, check_files
from mlir_offload.driver.option.click_command import command
from mlir_offload.driver.tools.choose import places_for
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.inventory import take_inventory
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.target import Kind

_LIMIT_S = 120.0


@command("doctor", jobs=os.cpu_count() or 1, timeout=_LIMIT_S)
@click.pass_obj
def doctor(  # noqa: PLR0913 (one parameter for each option)
    runner: Runner,
    *,
    kinds: tuple[str, ...],
    jobs: int,
    timeout: float,
    html: Path | None,
    llvm: str,
    cuda_path: str,
    rocm_path: str,
    quick: bool,
    as_json: bool,
    print_schema: bool,
    is_verbose: bool,
) -> int:
    """Test every combination of the installed LLVM, CUDA and ROCm with a small program.

    Exit status 0 if the default combination works, otherwise the exit status of its build.
    """
    if print_schema:
        sys.stdout.write(doctor_json.schema_text())
        return 0
    chosen = _chosen_kinds(kinds)
    check_files((), [OutputFile(html, "--html")] if html is not None else [])
    inventory = take_inventory(runner, places_for(llvm, cuda_path, rocm_path))
    report = Examination(runner, inventory, jobs, timeout, is_quick=quick).report(chosen)
    if html is not None:
        doctor_html.write_html(report, html)
    if as_json:
        sys.stdout.write(doctor_json.render_json(report))
    elif html is None:
        doctor_report.show_report(report, verbose=is_verbose)
    return report.exit_status


def _chosen_kinds(names: Sequence[str]) -> tuple[Kind, ...]:
    """Return the kinds to test: the named ones, by default all. Raises UsageError for an unknown kind."""
    known = known_kinds()
    for name in names:
        if name not in known:
            msg = f"--kind={name}: no kind that this release compiles for"
            raise UsageError(msg, hint=f"use {', '.join(known)}")
    return tuple(kind for kind in known if not names or kind in names)
