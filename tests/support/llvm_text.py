"""Parse textual LLVM IR independently of our readers, for comparison with them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LINKAGES = [
    "private",
    "internal",
    "available_externally",
    "linkonce_odr",
    "linkonce",
    "weak_odr",
    "weak",
    "common",
    "appending",
    "extern_weak",
    "external",
]
_VISIBILITIES = ("hidden", "protected")
_GLOBAL = re.compile(r"^@(\"[^\"]*\"|[-\w$.]+) = (.*?)\b(global|constant) (.*)$", re.MULTILINE)
_FUNCTION = re.compile(r"^(define|declare)( .*?)?@(\"[^\"]*\"|[-\w$.]+)\((.*)$", re.MULTILINE)
_CONVENTION = re.compile(r"\b(cc \d+|\w+cc|ptx_\w+|spir_\w+|amdgpu_\w+|graalcc)\b")
_GROUP = re.compile(r"^attributes #(\d+) = \{ (.*) \}$", re.MULTILINE)
_STRING_ATTRIBUTE = re.compile(r'"([^"]*)"(?:="([^"]*)")?')
_REFERENCE = re.compile(r"@(\"[^\"]*\"|[-\w$.]+)")
_OPEN, _CLOSE = "([{<", ")]}>"


@dataclass
class TextFunction:
    name: str
    is_declaration: bool
    linkage: str
    visibility: str
    convention: str
    parameters: tuple[str, ...]
    strings: dict[str, str]
    references: frozenset[str] = frozenset()


@dataclass
class TextVariable:
    name: str
    linkage: str
    visibility: str
    section: str
    type: str
    address_space: int
    is_constant: bool
    align_bytes: int


@dataclass
class TextModule:
    triple: str
    data_layout: str
    source_file: str
    functions: dict[str, TextFunction] = field(default_factory=dict)
    variables: dict[str, TextVariable] = field(default_factory=dict)


def read_text(text: str) -> TextModule:
    module = TextModule(
        _first(r'^target triple = "(.*)"$', text),
        _first(r'^target datalayout = "(.*)"$', text),
        _first(r'^source_filename = "(.*)"$', text),
    )
    groups = {
        number: dict(_STRING_ATTRIBUTE.findall(body)) for number, body in _GROUP.findall(text)
    }
    for match in _GLOBAL.finditer(text):
        variable = _variable(match)
        module.variables[variable.name] = variable
    for match in _FUNCTION.finditer(text):
        function = _function(match, groups, text)
        if not function.name.isdecimal():
            module.functions[function.name] = function
    return module


def leading_type(text: str) -> str:
    """Return the type at the beginning of a text."""
    if text[0] in _OPEN:
        end = _closing(text, 0)
    elif text.startswith("target("):
        end = _closing(text, 6)
    else:
        end = len(re.match(r'%"[^"]*"|[%\w.$-]+', text)[0])  # type: ignore[index]
    space = re.match(r" addrspace\(\d+\)", text[end:])
    return text[: end + len(space[0])] if space else text[:end]


def _variable(match: re.Match[str]) -> TextVariable:
    name, head, kind, tail = match.groups()
    words = head.split()
    space = re.search(r"addrspace\((\d+)\)", head)
    section = re.findall(r', section "([^"]*)"', tail)
    align = re.findall(r", align (\d+)", tail)
    return TextVariable(
        name.strip('"'),
        next((word for word in words if word in _LINKAGES), "external"),
        next((word for word in words if word in _VISIBILITIES), "default"),
        section[-1] if section else "",
        leading_type(tail),
        int(space[1]) if space else 0,
        kind == "constant",
        int(align[-1]) if align else 0,
    )


def _function(match: re.Match[str], groups: dict[str, dict[str, str]], text: str) -> TextFunction:
    kind, head, name, rest = match.groups()
    end = _closing(f"({rest}", 0) - 1
    words = (head or "").split()
    strings: dict[str, str] = {}
    for number in re.findall(r" #(\d+)", rest[end:]):
        strings |= groups[number]
    strings |= dict(_STRING_ATTRIBUTE.findall(_without_sections(rest[end:])))
    convention = _CONVENTION.search(head or "")
    body = ""
    if kind == "define":
        body = text[match.end() : text.index("\n}", match.end())]
    return TextFunction(
        name.strip('"'),
        kind == "declare",
        next((word for word in words if word in _LINKAGES), "external"),
        next((word for word in words if word in _VISIBILITIES), "default"),
        convention[1] if convention else "ccc",
        tuple(leading_type(one) for one in _split(rest[: end - 1]) if one != "..."),
        strings,
        _references(body),
    )


def _without_sections(text: str) -> str:
    return re.sub(r'(section|partition|gc) "[^"]*"', "", text)


def _references(body: str) -> frozenset[str]:
    lines = [
        re.sub(r"metadata [^,)]*(\([^)]*\)[^,)]*)?", "", line)
        for line in body.splitlines()
        if "#dbg_" not in line
    ]
    return frozenset(name.strip('"') for name in _REFERENCE.findall("\n".join(lines)))


def _closing(text: str, begin: int) -> int:
    depth = 0
    for place in range(begin, len(text)):
        depth += (text[place] in _OPEN) - (text[place] in _CLOSE)
        if not depth:
            return place + 1
    raise ValueError(text)


def _split(text: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        if character == "," and not depth:
            parts.append(text[begin:place].strip())
            begin = place + 1
    last = text[begin:].strip()
    return [*parts, last] if last else parts


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else ""
