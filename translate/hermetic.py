"""The text of a part of a program without what has no effect on its code.

A text that is split off still shows where it stood: line numbers, numbers of values and aliases that
count on from other parts. Without these it changes only where its own code does, so that a cache of
compiled parts misses nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

_STRING = r'"(?:[^"\\]|\\.)*"'
_ALIAS = re.compile(r"([#!][A-Za-z_]\w*) = (.*)")
_TOKEN = re.compile(
    # Names of operations are strings too; an attribute of a dialect goes on with . or <.
    rf"{_STRING}|[%^][\w$.-]+|[#!][A-Za-z_]\w*(?![\w$.<])"
)


def _balanced(depth: int) -> str:
    """Return the pattern of a text whose parentheses are closed, nested to a depth."""
    inner = rf"|\({_balanced(depth - 1)}\)" if depth else ""
    return rf'(?:[^()"]|{_STRING}{inner})*+'


# A location that is nested deeper stays, which is right as well.
_LOCATION = re.compile(rf"{_STRING}|(?<![=,]) loc\({_balanced(6)}\)")
_RESOURCES = "{-#"
_RESOURCE_USE = re.compile(r"\bdense_resource<([^>]*)>")
_RESOURCE = re.compile(rf'\s+([^\s:"]+|{_STRING}): "0x[0-9A-Fa-f]*",?')
# Its lowering for devices stores file, line and function.
_LOCATED = '"cf.assert"('


def hermetic_text(text: str, *, keeps_locations: bool = False) -> str:
    """Return a program, as mlir-opt prints it in generic form, named by its own content only.

    Values, blocks and aliases are numbered anew in the order of their first use; aliases and
    resources that are not used are left out, and so are source locations, except with
    `keeps_locations` and where they become part of the code.
    """
    lines = text.splitlines()
    resources_at = next((i for i, line in enumerate(lines) if line == _RESOURCES), len(lines))
    names = _Names(dict(_definitions(lines[:resources_at])))
    body = [
        names.renamed(line if keeps_locations or _LOCATED in line else _without_locations(line))
        for line in _body(lines[:resources_at])
    ]
    used = {key for line in body for key in _RESOURCE_USE.findall(line)}
    resources = _used_resources(lines[resources_at:], used) if used else []
    return "\n".join((*names.definitions, *body, *resources)) + "\n"


def _definitions(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    matches = (_ALIAS.fullmatch(line) for line in lines if line[:1] in {"#", "!"})
    return ((match[1], match[2]) for match in matches if match)


def _body(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if line and not _ALIAS.fullmatch(line))


class _Names(Struct):
    """New names for what the text names, given in the order of their first use.

    `definitions` are the aliases that are used, each behind those that it needs.
    """

    aliases: dict[str, str]
    definitions: list[str] = field(default_factory=list)
    _new: dict[str, str] = field(default_factory=dict)

    def renamed(self, line: str) -> str:
        return _TOKEN.sub(lambda match: self._name(match[0]), line)

    def _name(self, old: str) -> str:
        if old[0] == '"':
            return old
        if old in self._new:
            return self._new[old]
        if old[0] in "%^":
            new = f"%{len(self._new)}" if old[0] == "%" else f"^bb{len(self._new)}"
        elif old in self.aliases:
            # An alias may not refer to itself, so that this ends.
            definition = self.renamed(self.aliases[old])
            new = f"{old[0]}a{len(self.definitions)}"
            self.definitions.append(f"{new} = {definition}")
        else:
            new = old
        self._new[old] = new
        return new


def _without_locations(line: str) -> str:
    """Return the line without the ` loc(...)` of operations and block arguments.

    A location that is the value of an attribute stands behind `=` or `,` and stays.
    """
    return _LOCATION.sub(lambda match: match[0] if match[0][0] == '"' else "", line)


def _used_resources(lines: list[str], used: set[str]) -> list[str]:
    """Return the section of resources without those entries that nothing refers to."""
    kept: list[str] = []
    for line in lines:
        match = _RESOURCE.fullmatch(line)
        if match is None:
            if line.strip().startswith("}") and kept:
                kept[-1] = kept[-1].rstrip(",")
            kept.append(line)
        elif match[1] in used:
            kept.append(line.rstrip(",") + ",")
    return kept
