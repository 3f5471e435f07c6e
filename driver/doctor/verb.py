"""Try what is installed, for real: which combinations work, what is not what it says, what to install."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from mlir_offload.driver.doctor.examination import Examination
from mlir_offload.driver.doctor.plan import known_kinds
from mlir_offload.driver.option.file_use import OutputFile, check_files
from mlir_offload.driver.tools.choose import places_for
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.inventory import take_inventory
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.target import Kind

_LIMIT_S = 120.0


@click.command(context_settings={"help_option_names": ["--help", "-h"]})
@click.option("--quick", is_flag=True, help="try the default combination only")
@click.option("--kind", "kinds", multiple=True, help="try this offload kind only; several times")
@click.option("-j", "jobs", type=click.IntRange(1), default=os.cpu_count() or 1)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=_LIMIT_S)
@click.option("--json", "as_json", is_flag=True, help="print JSON, as --print-schema describes it")
@click.option("--html", type=click.Path(path_type=Path), help="write a page that a browser shows")
@click.option("--print-schema", is_flag=True, help="print the JSON schema")
@click.option("--verbose", "-v", is_flag=True, help="show what each tool turned out to be")
@click.option("--llvm", default="", help="a release (22) or a prefix that is the default here")
@click.option("--cuda-path", default="", help="the CUDA toolkit to try, no other")
@click.option("--rocm-path", default="", help="the ROCm installation to try, no other")
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
    verbose: bool,
) -> int:
    """Try every combination of the installed LLVM, CUDA and ROCm with a small program.

    Exit status 0 where the default combination works; where not, what the build of it gave.
    """
    if print_schema:
        from mlir_offload.driver.doctor.json import schema_text

        sys.stdout.write(schema_text())
        return 0
    chosen = _chosen_kinds(kinds)
    check_files((), [OutputFile(html, "--html")] if html is not None else [])
    inventory = take_inventory(runner, places_for(llvm, cuda_path, rocm_path))
    report = Examination(runner, inventory, jobs, timeout, is_quick=quick).report(chosen)
    if html is not None:
        from mlir_offload.driver.doctor.html import write_html

        write_html(report, html)
    if as_json:
        from mlir_offload.driver.doctor.json import render_json

        sys.stdout.write(render_json(report))
    elif html is None:
        from mlir_offload.driver.doctor.report import show_report

        show_report(report, verbose=verbose)
    return report.exit_status


def run_doctor(arguments: Sequence[str], runner: Runner) -> int:
    """Run `mlir-offload doctor`; return its exit status. Raises UsageError."""
    try:
        status = doctor.main(
            list(arguments), prog_name="mlir-offload doctor", standalone_mode=False, obj=runner
        )
    except click.UsageError as error:
        raise UsageError(error.format_message(), hint="see 'mlir-offload doctor --help'") from error
    return int(status or 0)


def _chosen_kinds(names: Sequence[str]) -> tuple[Kind, ...]:
    """Return the kinds to try: all that this release compiles for, where none is named."""
    known = known_kinds()
    for name in names:
        if name not in known:
            msg = f"--kind={name}: no kind that this release compiles for"
            raise UsageError(msg, hint=f"use {', '.join(known)}")
    return tuple(kind for kind in known if not names or kind in names)
