"""Diagnostics as one SARIF 2.1.0 document (OASIS), for code scanning and editors."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from mlir_offload.driver import __version__
from mlir_offload.driver.message.diagnostic import PROGRAM, Diagnostic
from mlir_offload.driver.message.escape import harmless_json
from mlir_offload.toolchain.errors import SourceLocation
from mlir_offload.toolchain.skew.rule import is_rule_name, load_rules
from mlir_offload.translate.tool_message import Severity

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
# SARIF has no level for remarks; they are notes (section 3.27.10).
_LEVELS = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.NOTE: "note",
    Severity.REMARK: "note",
}
_WARNING_FLAG = re.compile(r" \[(-W[^\]]+)\]$")


def render_sarif(messages: Sequence[Diagnostic], status: int) -> str:
    """Return the document of a run of mlir-offload that ended with an exit status."""
    rules = list(dict.fromkeys(_rule(message) for message in messages))
    run = {
        "tool": {
            "driver": {
                "name": PROGRAM,
                "version": __version__,
                "rules": [_described(rule) for rule in rules],
            }
        },
        "invocations": [{"executionSuccessful": status == 0, "exitCode": status}],
        "results": [_result(message, rules) for message in messages],
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return harmless_json(json.dumps(document, indent=1))


def _described(rule: str) -> dict[str, Any]:
    """Return the description of a rule; only skew rules have a reason and a hint."""
    if not is_rule_name(rule):
        return {"id": rule}
    found = load_rules()[rule]
    help_text = f"{found.reason}\nHint: {found.hint}\nSource: {found.source}"
    return {
        "id": rule,
        "name": found.title,
        "shortDescription": {"text": found.title},
        "fullDescription": {"text": found.reason},
        "help": {"text": help_text},
        "defaultConfiguration": {"level": _LEVELS[Severity(found.severity)]},
    }


def _rule(message: Diagnostic) -> str:
    """Return the rule ID of a diagnostic: its skew rule, error class, warning flag, or tool and severity."""
    if message.rule:
        return message.rule
    if message.error_class:
        return f"{message.error_class}-error"
    flag = _WARNING_FLAG.search(message.text)
    return f"{message.tool}/{flag[1] if flag else message.severity}"


def _result(message: Diagnostic, rules: Sequence[str]) -> dict[str, Any]:
    rule = _rule(message)
    text = f"{message.text}\nhint: {message.hint}" if message.hint else message.text
    properties = {
        "stage": message.stage,
        "tool": message.tool,
        "command": message.command,
        "toolStatus": message.tool_status,
        "image": message.image,
        "kernel": message.kernel,
    }
    result = {
        "ruleId": rule,
        "ruleIndex": rules.index(rule),
        "level": _LEVELS[message.severity],
        "message": {"text": text},
        "properties": {
            name: value for name, value in properties.items() if value not in ("", None)
        },
    }
    if message.place is None:
        return result
    fixes = {"fixes": [_fix(message.place, message.fix)]} if message.fix else {}
    return result | {"locations": [_location(message.place)]} | fixes


def _location(place: SourceLocation) -> dict[str, Any]:
    """Return the location. The file is a URI reference, relative if the user's path is relative."""
    physical: dict[str, Any] = {"artifactLocation": _artifact(place)}
    region = _region(place)
    return {"physicalLocation": physical | ({"region": region} if region else {})}


def _artifact(place: SourceLocation) -> dict[str, str]:
    path = PurePath(place.file)
    uri = quote(str(path).encode("utf-8", "surrogateescape"), safe="/")
    return {"uri": f"file://{uri}" if path.is_absolute() else uri}


def _region(place: SourceLocation) -> dict[str, int]:
    """Return the region; endColumn is one past the last column (section 3.30.9)."""
    numbers = {
        "startLine": place.line,
        "startColumn": place.column,
        "endColumn": place.end_column,
    }
    return {name: number for name, number in numbers.items() if number}


def _fix(place: SourceLocation, text: str) -> dict[str, Any]:
    """Return a fix that replaces the region (section 3.55)."""
    replacement = {"deletedRegion": _region(place), "insertedContent": {"text": text}}
    return {
        "description": {"text": f"write '{text}'"},
        "artifactChanges": [{"artifactLocation": _artifact(place), "replacements": [replacement]}],
    }
