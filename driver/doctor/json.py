"""The output of `mlir-offload doctor --json`; `data/doctor.schema.json` is its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlir_offload.driver import __version__
from mlir_offload.driver.doctor.report import DoctorReport, summary
from mlir_offload.driver.doctor.trial import Cell, Trial
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.skew.identity import ToolIdentity

SCHEMA_VERSION = 2
_SCHEMA = Path(__file__).parents[1] / "data" / "doctor.schema.json"


def schema_text() -> str:
    """Return the JSON schema of the document."""
    return _SCHEMA.read_text(encoding="utf-8")


def render_json(report: DoctorReport) -> str:
    """Return the document."""
    document = {
        "schema": SCHEMA_VERSION,
        "generator": f"mlir-offload {__version__}",
        "summary": summary(report),
        "exit_status": report.exit_status,
        "is_quick": report.is_quick,
        "tools": [_tool(tool) for tool in report.tools],
        "combinations": [_cell(cell) for cell in report.cells],
        "findings": [
            {
                "rule": finding.rule,
                "severity": str(finding.severity),
                "message": finding.message,
                "hint": finding.hint,
                "location": finding.location,
            }
            for finding in report.findings
        ],
        "to_install": [
            {
                "part": one.part,
                "purpose": one.purpose,
                "command": one.command,
                "is_optional": one.is_optional,
            }
            for one in report.to_install
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _tool(tool: ToolIdentity) -> dict[str, Any]:
    return {
        "installation": tool.group,
        "name": tool.name,
        "path": str(tool.path) if tool.path else None,
        "says": tool.said,
        "writes": tool.written,
        "facts": [
            {"name": fact.name, "value": fact.value, "evidence": str(fact.evidence)}
            for fact in tool.facts
        ],
        "problem": tool.problem,
    }


def _cell(cell: Cell) -> dict[str, Any]:
    one = cell.combination
    sdk = one.sdk
    return {
        "kind": str(one.kind),
        "arch": one.arch,
        "producer": _release(one.producer),
        "consumer": _release(one.consumer),
        "sdk": {"name": sdk.name, "path": str(sdk.path)} if sdk else None,
        "is_default": one.is_default,
        "mlir_offload": _trial(cell.ours),
        "clang_alone": _trial(cell.alone) if cell.alone else None,
        "adapters": list(cell.adapters),
    }


def _release(release: LlvmToolchain) -> dict[str, str]:
    return {"version": str(release.version), "prefix": str(release.prefix)}


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "verdict": str(trial.verdict),
        "reason": trial.reason,
        "hint": trial.hint,
        "command": trial.command,
        "exit_status": trial.exit_status,
        "seconds": trial.seconds,
    }
