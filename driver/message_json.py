"""Messages as JSON: one object on each line, as data/message.schema.json describes it."""

from __future__ import annotations

import json
from pathlib import Path

from mlir_offload.driver.message import Message

_SCHEMA = Path(__file__).parent / "data" / "message.schema.json"


def render_json(message: Message) -> str:
    """Return one line of JSON; members that are not known are left out."""
    place = message.place
    members = {
        "severity": str(message.severity),
        "message": message.text,
        "file": place.file if place else "",
        "line": place.line if place else 0,
        "column": place.column if place else 0,
        "stage": message.stage,
        "tool": message.tool,
        "command": message.command,
        "tool_status": message.tool_status,
        "details": list(message.details),
        "hint": message.hint,
        "rule": message.rule,
        "image": message.image,
        "kernel": message.kernel,
        "class": message.error_class,
        "status": message.status,
    }
    # Zero says something of a status; of a line it says that there is none.
    known = {
        name: value
        for name, value in members.items()
        if value or (name.endswith("status") and value is not None)
    }
    # ASCII, so that a name that is no UTF-8 cannot make a line that is no JSON.
    return json.dumps(known)


def render_output(text: str) -> str:
    """Return a line of JSON for what is no message: a step that -v shows, a table of times."""
    return json.dumps({"severity": "output", "message": text, "tool": "mlir-offload"})


def schema_text() -> str:
    """Return the JSON schema of a line."""
    return _SCHEMA.read_text(encoding="utf-8")
