"""Diagnostics as workflow commands of GitHub Actions, which shows them next to the source lines."""

from __future__ import annotations

from mlir_offload.driver.message.diagnostic import PROGRAM, Diagnostic
from mlir_offload.driver.message.escape import shown_lines
from mlir_offload.translate.tool_message import Severity

_COMMANDS = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.NOTE: "notice",
}


def render_github(message: Diagnostic) -> str:
    """Return one line, as `::error file=k.mlir,line=2,col=8,title=mlir-opt (lower)::text`.

    Empty for a remark, because GitHub limits the number of annotations.
    """
    if message.severity is Severity.REMARK:
        return ""
    title = message.rule or message.tool
    title = f"{title} ({message.stage})" if message.stage else title
    place = message.place
    parts = {
        "file": place.file if place else "",
        "line": str(place.line or "") if place else "",
        "col": str(place.column or "") if place else "",
        "endColumn": str(place.end_column - 1) if place and place.end_column else "",
        "title": title if title != PROGRAM else "",
    }
    properties = ",".join(f"{name}={_property(value)}" for name, value in parts.items() if value)
    hint = (f"hint: {message.hint}",) if message.hint else ()
    text = _data("\n".join((message.text, *message.details, *hint)))
    command = _COMMANDS[message.severity]
    return f"::{command} {properties}::{text}" if properties else f"::{command}::{text}"


def _data(text: str) -> str:
    """Return text with the escapes that the workflow runner decodes."""
    lines = shown_lines(text.replace("%", "%25").replace("\r", "%0D"))
    return lines.replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
