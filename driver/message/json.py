"""Diagnostics as JSON lines, with the schema in data/message.schema.json."""

from __future__ import annotations

import json
from pathlib import Path

from mlir_offload.driver.message.diagnostic import Diagnostic
from mlir_offload.driver.message.escape import harmless_json
from mlir_offload.toolchain.errors import SourceLocation
from mlir_offload.translate.tool_message import Severity

_SCHEMA = Path(__file__).parents[1] / "data" / "message.schema.json"


def render_json(message: Diagnostic) -> str:
    """Return one line of JSON; unknown members are omitted."""
    place = message.place
    members = {
        "severity": str(message.severity),
        "message": message.text,
        "file": place.file if place else "",
        "line": place.line if place else 0,
        "column": place.column if place else 0,
        "end_column": place.end_column if place else 0,
        "stage": message.stage,
        "tool": message.tool,
        "command": message.command,
        "tool_status": message.tool_status,
        "details": list(message.details),
        "hint": message.hint,
        "rule": message.rule,
        "image": message.image,
        "kernel": message.kernel,
        "fix": message.fix,
        "class": message.error_class,
        "status": message.status,
    }
    # A status of 0 is a value; a line or column of 0 means unknown.
    known = {
        name: value
        for name, value in members.items()
        if value or (name.endswith("status") and value is not None)
    }
    # ASCII, so that names that are not UTF-8 cannot make the JSON invalid.
    return harmless_json(json.dumps(known))


def parse_message(line: str) -> Diagnostic | None:
    """Return the diagnostic of a line that `render_json` wrote; None for any other line."""
    try:
        members = json.loads(line)
        severity = Severity(members["severity"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    numbers = (members.get(name, 0) for name in ("line", "column", "end_column"))
    place = SourceLocation(members.get("file", ""), *numbers)
    return Diagnostic(
        severity,
        members["message"],
        place if place.file else None,
        members.get("stage", ""),
        members.get("tool", ""),
        members.get("command", ""),
        members.get("tool_status"),
        members.get("hint", ""),
        tuple(members.get("details", ())),
        members.get("class", ""),
        members.get("status"),
        members.get("rule", ""),
        members.get("image", ""),
        members.get("kernel", ""),
        members.get("fix", ""),
    )


def parse_output(line: str) -> str:
    """Return the text of a line that `render_output` wrote; any other line unchanged."""
    try:
        members = json.loads(line)
    except (ValueError, RecursionError):
        return line
    is_output = isinstance(members, dict) and members.get("severity") == "output"
    return str(members["message"]) if is_output else line


def plain_text(text: str) -> str:
    """Return the output of a step with each JSON diagnostic as one line of text."""
    lines = []
    for line in text.splitlines():
        message = parse_message(line)
        place = f"{message.place}: " if message and message.place else ""
        lines.append(
            f"{place}{message.severity}: {message.text}" if message else parse_output(line)
        )
    return "".join(f"{line}\n" for line in lines)


def render_output(text: str) -> str:
    """Return a line of JSON for output other than diagnostics, such as commands of -v and time reports."""
    members = {"severity": "output", "message": text, "tool": "mlir-offload"}
    return harmless_json(json.dumps(members))


def schema_text() -> str:
    """Return the JSON schema of a line."""
    return _SCHEMA.read_text(encoding="utf-8")
