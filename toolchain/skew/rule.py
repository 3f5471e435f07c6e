"""The compatibility rules, from the table that ships with the package."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.skew.identity import Severity
from mlir_offload.toolchain.tables import load_table

_NAME = pattern(r"[A-Z]{2,4}\d{3}")
_FIELDS = ("title", "severity", "message", "reason", "hint", "source")


class Rule(Struct, frozen=True):
    """A compatibility rule. `message` has placeholders for the values of a finding.

    `said` are patterns of tool messages for the same cause.
    """

    name: str
    title: str
    severity: Severity
    message: str
    reason: str
    hint: str
    source: str
    said: tuple[re.Pattern[str], ...] = ()


def is_rule_name(text: str) -> bool:
    """Return whether a word has the form of a rule ID."""
    return _NAME.fullmatch(text) is not None


def rule_said(text: str) -> Rule | None:
    """Return the rule for a tool message, None if no rule matches."""
    rules = load_rules().values()
    return next((rule for rule in rules if any(one.search(text) for one in rule.said)), None)


@cache
def load_rules() -> Mapping[str, Rule]:
    """Return the rules that ship with the package by ID, in the order of the table."""
    return parse_rules(load_table("mlir_offload.toolchain", "skew_rules"))


def parse_rules(table: Mapping[str, Any]) -> Mapping[str, Rule]:
    """Parse and check the rules. Raises ValueError with the ID of an invalid row and the reason."""
    rules: dict[str, Rule] = {}
    for row in table["rules"]:
        rule = _rule(row)
        if rule.name in rules:
            msg = f"skew_rules: {rule.name} is listed twice"
            raise ValueError(msg)
        rules[rule.name] = rule
    return rules


def _rule(row: Mapping[str, Any]) -> Rule:
    name = str(row.get("id"))
    if not _NAME.fullmatch(name):
        msg = f"skew_rules: '{name}' is not a name of a rule, which is letters and three digits"
        raise ValueError(msg)
    if set(row) - {"said"} != {"id", *_FIELDS}:
        wrong = sorted((set(row) - {"said"}).symmetric_difference({"id", *_FIELDS}))
        msg = f"skew_rules: {name} lacks, or has without need, {', '.join(map(str, wrong))}"
        raise ValueError(msg)
    texts = {field: " ".join(str(row[field]).split()) for field in _FIELDS}
    if empty := [field for field, text in texts.items() if not text]:
        msg = f"skew_rules: {name} has an empty {empty[0]}"
        raise ValueError(msg)
    severity = texts.pop("severity")
    if severity not in list(Severity):
        msg = f"skew_rules: {name} has the severity '{severity}'; there are {', '.join(Severity)}"
        raise ValueError(msg)
    _check_message(name, texts["message"])
    said = tuple(_pattern(name, text) for text in row.get("said", ()))
    return Rule(name, severity=Severity(severity), said=said, **texts)


def _pattern(name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        msg = f"skew_rules: invalid pattern in `said` of {name}: {error}"
        raise ValueError(msg) from error


def _check_message(name: str, message: str) -> None:
    try:
        places = [
            place for _, place, _, _ in string.Formatter().parse(message) if place is not None
        ]
    except ValueError as error:
        msg = f"skew_rules: the message of {name} is not a format: {error}"
        raise ValueError(msg) from error
    if wrong := [place for place in places if not place.isidentifier()]:
        msg = f"skew_rules: the message of {name} has a place '{wrong[0]}' that is not a name"
        raise ValueError(msg)
