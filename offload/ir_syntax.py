"""The syntax of LLVM IR text, and texts whose strings and quoted names are out of the way.

A rewrite of several steps works on a `concealed` text: every name in it is a bare word, and no string
or comment looks like code. `revealed` brings back what was there.
"""

from __future__ import annotations

import re

from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.syntax import Syntax

LLVM_IR = Syntax(r'"[^"\n]*"|;[^\n]*')

_PREFIX = "moq."
_BARE_NAME = pattern(r"[-A-Za-z$._][-\w$.]*", re.ASCII)
# What rewrites look for: keys and values of attributes, names of metadata, a file without blanks.
_PLAIN_STRING = pattern(r"(?!moq\.)[-\w.,+=/]*", re.ASCII)
_OPAQUE = pattern(
    r"""(?P<sigil>[@%$])(?:"(?P<name>[^"\n]*)"|(?P<taken>moq\.[-\w$.]*))
    |^"(?P<label>[^"\n]*)"(?=:)
    |(?P<bytes>\bc)?"(?P<string>[^"\n]*)"
    |;(?P<comment>[^\n]*)""",
    re.VERBOSE,
)
# Pairs of digits, but a group for each pair takes seconds where a constant has megabytes.
_CONCEALED = pattern(rf'([@%$"]|;|^){re.escape(_PREFIX)}([0-9a-f]*)(?![-\w$.])')
_LINKAGE = frozenset(
    [
        "private",
        "internal",
        "external",
        "linkonce_odr",
        "linkonce",
        "weak_odr",
        "weak",
        "common",
        "available_externally",
        "extern_weak",
        "dso_local",
        "dso_preemptable",
        "default",
        "hidden",
        "protected",
    ]
)
_ESCAPE = pattern(rb"\\([0-9A-Fa-f]{2}|\\)")
_PLAIN_BYTES = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')


def concealed(text: str) -> str:
    """Return LLVM IR whose names are bare, with no code in strings and comments."""
    return "\n".join(
        _OPAQUE.sub(_conceal, line) if '"' in line or ";" in line or _PREFIX in line else line
        for line in text.split("\n")
    )


def revealed(text: str) -> str:
    """Return the text as it was before it was concealed."""
    if _PREFIX not in text:
        return text
    return "\n".join(
        _CONCEALED.sub(_reveal, line) if _PREFIX in line else line for line in text.split("\n")
    )


def reference(name: str) -> str:
    """Return the name of a global or local value as concealed text writes it, without `@`."""
    is_bare = is_bare_name(name) and not name.startswith(_PREFIX)
    return name if is_bare else _hidden(encoded(name))


def is_bare_name(name: str) -> bool:
    """Say whether LLVM IR spells a name without quotes."""
    return _BARE_NAME.fullmatch(name) is not None


def name_of(spelling: str) -> str:
    """Return the name that a concealed text writes so."""
    match = _CONCEALED.fullmatch(f"@{spelling}")
    return bytes.fromhex(match[2]).decode(errors="surrogateescape") if match else spelling


def string_of(content: str) -> str:
    """Return what a concealed text has between quotes, with the escapes of LLVM IR."""
    match = _CONCEALED.fullmatch(f'"{content}')
    return bytes.fromhex(match[2]).decode(errors="surrogateescape") if match else content


def without_linkage(words: str) -> str:
    """Return the words before a type or a name without linkage, `dso_local` and visibility."""
    while (word := words.split(" ", 1)[0]) in _LINKAGE:
        words = words[len(word) :].lstrip(" ")
    return words


def is_local(words: str) -> bool:
    """Say whether the words of a definition make it invisible to other modules."""
    return words.startswith(("internal ", "private "))


def encoded(text: str) -> bytes:
    """Return the bytes of a name or string."""
    return text.encode(errors="surrogateescape")


def escape_bytes(data: bytes) -> str:
    """Return the bytes as the inside of an LLVM string."""
    return "".join(chr(byte) if byte in _PLAIN_BYTES else f"\\{byte:02X}" for byte in data)


def unescape_bytes(text: str) -> bytes:
    r"""Return what the inside of an LLVM string means (`\0A` is a newline)."""
    return unescape(encoded(text))


def unescape(text: bytes) -> bytes:
    r"""Return what the bytes inside of an LLVM string mean."""
    return _ESCAPE.sub(
        lambda match: b"\\" if match[1] == b"\\" else bytes.fromhex(match[1].decode()), text
    )


def _conceal(match: re.Match[str]) -> str:
    spelled = (match["name"] or match["taken"] or "") if match["sigil"] else match["label"]
    if spelled is not None:
        bare = unescape_bytes(spelled).decode(errors="surrogateescape")
        text = reference(bare)
        return f"{match['sigil'] or ''}{text}"
    if match["comment"] is not None:
        return f";{_hidden(encoded(match['comment']))}"
    if not match["bytes"] and _PLAIN_STRING.fullmatch(match["string"]):
        return match[0]
    return f'{match["bytes"] or ""}"{_hidden(encoded(match["string"]))}"'


def _hidden(data: bytes) -> str:
    return f"{_PREFIX}{data.hex()}"


def _reveal(match: re.Match[str]) -> str:
    mark, data = match[1], bytes.fromhex(match[2])
    if mark in {'"', ";"}:
        return f"{mark}{data.decode(errors='surrogateescape')}"
    return f'{mark}"{escape_bytes(data)}"'
