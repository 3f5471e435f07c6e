"""The syntax of LLVM IR text, and texts whose strings and quoted names are out of the way.

A rewrite of several steps works on a `concealed` text: every name in it is a bare word, and no string
or comment looks like code. `revealed` brings back what was there.
"""

from __future__ import annotations

import re

from mlir_offload.toolchain.syntax import Syntax

LLVM_IR = Syntax(r'"[^"\n]*"|;[^\n]*')

_PREFIX = "moq."
_BARE_NAME = re.compile(r"[-A-Za-z$._][-\w$.]*", re.ASCII)
# What rewrites look for: keys and values of attributes, names of metadata, a file without blanks.
_PLAIN_STRING = re.compile(r"(?!moq\.)[-\w.,+=/]*", re.ASCII)
_OPAQUE = re.compile(
    r"""(?P<sigil>[@%$])(?:"(?P<name>[^"\n]*)"|(?P<taken>moq\.[-\w$.]*))
    |^"(?P<label>[^"\n]*)"(?=:)
    |(?P<bytes>\bc)?"(?P<string>[^"\n]*)"
    |;(?P<comment>[^\n]*)""",
    re.VERBOSE,
)
# Pairs of digits, but a group for each pair takes seconds where a constant has megabytes.
_CONCEALED = re.compile(rf'([@%$"]|;|^){re.escape(_PREFIX)}([0-9a-f]*)(?![-\w$.])')
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2})")
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
    is_bare = _BARE_NAME.fullmatch(name) and not name.startswith(_PREFIX)
    return name if is_bare else _hidden(encoded(name))


def name_of(spelling: str) -> str:
    """Return the name that a concealed text writes so."""
    match = _CONCEALED.fullmatch(f"@{spelling}")
    return bytes.fromhex(match[2]).decode(errors="surrogateescape") if match else spelling


def string_of(content: str) -> str:
    """Return what a concealed text has between quotes, with the escapes of LLVM IR."""
    match = _CONCEALED.fullmatch(f'"{content}')
    return bytes.fromhex(match[2]).decode(errors="surrogateescape") if match else content


def encoded(text: str) -> bytes:
    """Return the bytes of a name or string."""
    return text.encode(errors="surrogateescape")


def escape_bytes(data: bytes) -> str:
    """Return the bytes as the inside of an LLVM string."""
    return "".join(chr(byte) if byte in _PLAIN_BYTES else f"\\{byte:02X}" for byte in data)


def unescape_bytes(text: str) -> bytes:
    r"""Return what the inside of an LLVM string means (`\0A` is a newline)."""
    return _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), encoded(text))


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
