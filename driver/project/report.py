"""The record of a build: a JSON report, and a trace in the format of Chrome's trace viewer."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from mlir_offload.driver import __version__
from mlir_offload.driver.message.json import plain_text
from mlir_offload.driver.project.run import StepOutcome, StepResult
from mlir_offload.driver.system.workspace import open_output
from mlir_offload.toolchain.byte_view import write_all

_REPORT_VERSION = 1
_PROCESS = 1


class BuildRecord(Struct, frozen=True):
    """A build that has ended. `started` is in seconds since 1970; `lanes` is the maximum of concurrent steps."""

    manifest: Path
    started: float
    duration_s: float
    lanes: int
    results: tuple[StepResult, ...]

    @property
    def has_failed(self) -> bool:
        """Return whether a step failed."""
        return any(result.outcome is StepOutcome.FAILED for result in self.results)


def count_outcomes(results: Iterable[StepResult]) -> Counter[StepOutcome]:
    """Return the number of graph steps with each outcome."""
    counts: Counter[StepOutcome] = Counter()
    for result in results:
        counts[result.outcome] += result.steps
    return counts


def write_report(record: BuildRecord, output: Path) -> None:
    """Write the report, with the schema data/project.schema.json. Raises InputOutputError."""
    counts = count_outcomes(record.results)
    text = json.dumps(
        {
            "version": _REPORT_VERSION,
            "generator": f"mlir-offload {__version__}",
            "manifest": str(record.manifest),
            "started": record.started,
            "duration_s": round(record.duration_s, 6),
            "lanes": record.lanes,
            "succeeded": not record.has_failed,
            "counts": {outcome.value: counts[outcome] for outcome in StepOutcome},
            "steps": [_row(result) for result in record.results],
        },
        indent=1,
    )
    write_text(text + "\n", output)


def _row(result: StepResult) -> dict[str, Any]:
    step = result.step
    return {
        "kind": step.kind,
        "module": str(step.module),
        "variant": step.variant,
        "arch": step.arch,
        "steps": result.steps,
        "outcome": result.outcome.value,
        "start_s": round(result.start_s, 6),
        "duration_s": round(result.duration_s, 6),
        "lane": result.lane,
        "exit_status": result.exit_status,
        "message": plain_text(result.message),
        "command": shlex.join(("mlir-offload", *step.action.arguments)),
        "inputs": [str(path) for path in step.action.reads],
        "outputs": [str(path) for path in step.action.outputs],
        "toolchain_id": step.action.toolchain_id,
    }


def write_trace(record: BuildRecord, output: Path) -> None:
    """Write the steps that ran as complete events, one thread per lane. Raises InputOutputError."""
    ran = [result for result in record.results if is_timed(result)]
    names = [
        {
            "name": "thread_name",
            "ph": "M",
            "pid": _PROCESS,
            "tid": lane,
            "args": {"name": f"lane {lane}"},
        }
        for lane in sorted({result.lane for result in ran})
    ]
    events = [
        {
            "name": result.step.label,
            "cat": f"{result.step.kind},{result.outcome.value}",
            "ph": "X",
            "ts": round(result.start_s * 1e6),
            "dur": round(result.duration_s * 1e6),
            "pid": _PROCESS,
            "tid": result.lane,
            "args": {"outcome": result.outcome.value},
        }
        for result in ran
    ]
    trace = {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}
    write_text(json.dumps(trace) + "\n", output)


def is_timed(result: StepResult) -> bool:
    """Return whether a step ran in this build."""
    return result.outcome in {StepOutcome.BUILT, StepOutcome.FAILED}


def write_text(text: str, output: Path) -> None:
    """Write a file atomically. Raises InputOutputError."""
    with open_output(output) as descriptor:
        write_all(text.encode("utf-8", "surrogateescape"), descriptor)
