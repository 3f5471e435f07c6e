"""Explain a skew rule: what is wrong, why, and what to do."""

from __future__ import annotations

import difflib
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence

from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.skew.identity import Severity
from mlir_offload.toolchain.skew.rule import Rule, load_rules

_WIDTH = 80
_PLACE = re.compile(r"\{(\w+)\}")
_HEADINGS = {
    "BC": "Bitcode",
    "LL": "Textual IR",
    "DL": "Data layout",
    "NV": "NVIDIA",
    "AM": "AMD",
    "OF": "Containers, entries, runtimes",
    "TOOL": "Tools",
    "ENV": "The machine",
}


def explain(names: Sequence[str], _: Runner) -> int:
    """Print the rules with these names, or a list of all rules. Raises UsageError for an unknown name."""
    rules = load_rules()
    if not names:
        lines = (f"{rule.name:7}  {rule.severity:7}  {rule.title}" for rule in rules.values())
        sys.stdout.write("\n".join(lines) + "\n")
        return 0
    found = [_rule(name) for name in names]
    sys.stdout.write("\n".join(_explained(rule) for rule in found))
    return 0


def render_rules() -> str:
    """Return the list of all rules as Markdown."""
    parts: list[str] = []
    heading = ""
    for rule in load_rules().values():
        title = _HEADINGS[rule.name.rstrip("0123456789")]
        if title != heading:
            parts.append(f"### {title}\n")
            heading = title
        parts.append("\n".join(_section(rule)))
    return "\n".join(parts)


def generic(text: str) -> str:
    """Return a message with its placeholders in capitals instead of the values of one case."""
    return _PLACE.sub(lambda match: match[1].upper(), text)


def _rule(name: str) -> Rule:
    rules = load_rules()
    if name.upper() in rules:
        return rules[name.upper()]
    near = difflib.get_close_matches(name.upper(), rules, n=1)
    msg = f"there is no rule '{name}'"
    hint = f"did you mean {near[0]}?" if near else "'mlir-offload explain' lists them"
    raise UsageError(msg, hint=hint)


def _explained(rule: Rule) -> str:
    parts = (
        ("says", generic(rule.message)),
        ("why", rule.reason),
        ("hint", rule.hint),
        *(("tools", pattern.pattern) for pattern in rule.said),
        ("source", rule.source),
    )
    lines = [f"{rule.name}: {rule.title} ({rule.severity})"]
    for label, text in parts:
        start = f"  {label + ':':9}"
        lines += textwrap.wrap(text, _WIDTH, initial_indent=start, subsequent_indent=" " * 11)
    return "\n".join(lines) + "\n"


def _section(rule: Rule) -> Iterator[str]:
    severity = f"**{rule.severity}**" if rule.severity is Severity.ERROR else rule.severity
    yield f"#### {rule.name}: {rule.title}\n"
    yield f"{severity}: {_escaped(generic(rule.message))}\n"
    yield f"{_escaped(rule.reason)}\n"
    yield f"*Hint:* {_escaped(rule.hint)}\n"
    if rule.said:
        yield f"*Tools print:* {', '.join(f'`{pattern.pattern}`' for pattern in rule.said)}\n"
    yield f"*Source:* {_escaped(rule.source)}\n"


def _escaped(text: str) -> str:
    """Return text with the special characters of Markdown escaped."""
    return re.sub(r"([_*<|`])", r"\\\1", text)
