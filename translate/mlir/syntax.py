"""The tokens of MLIR text, so that what is in a string or a comment is never taken for code."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.syntax import Syntax

_STRING = r'"(?:[^"\\\n]++|\\.)*+"'
_COMMENT = r"//[^\n\0]*"  # in bytecode texts end with NUL
_SUFFIX_ID = r"[\w$.-]+"
_TOKEN = pattern(
    rf"{_STRING}|{_COMMENT}|@{_STRING}|[@%^]{_SUFFIX_ID}(?:#\d+)?|[#!]?[A-Za-z_][\w$.]*"
    r"|\d[\w.]*|->|::|[^\s]"
)
_ESCAPE = pattern(rb"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_BARE_NAME = pattern(r"[A-Za-z_][\w$.-]*")
_VALUE = pattern(r"%[\w$.-]+(?:#\d+)?")
# Names of operations are strings too; an attribute of a dialect goes on with . or <.
_NAME = pattern(rf"{_STRING}|[%^]{_SUFFIX_ID}|[#!][A-Za-z_]\w*(?![\w$.<])")
_PRINTABLE = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')

MLIR = Syntax(rf"{_STRING}|//[^\n]*", operators="->|[<>]=")
"""Brackets and lists of MLIR text."""


def tokens(text: str) -> list[str]:
    """Return the tokens of any MLIR text without spaces and comments.

    The first character of a token tells what it is: `"` a string, `%` a value, `@` a symbol, `^` a
    block, `#` and `!` an alias or the name of a dialect's attribute or type.
    """
    found: list[str] = _TOKEN.findall(text)
    return [token for token in found if token[:2] != "//"] if "//" in text else found


def unescape_bytes(text: str) -> bytes:
    """Return the bytes of the string that MLIR prints as `text` between quotes."""
    raw = text.encode("utf-8", errors="surrogateescape")
    return _ESCAPE.sub(lambda m: bytes.fromhex(m[1].decode()) if m[1] else m[2], raw)


def unescape(text: str) -> str:
    """Return the string that MLIR prints as `text` between quotes."""
    return unescape_bytes(text).decode("utf-8", errors="replace") if "\\" in text else text


def escape(text: str) -> str:
    """Return the string as MLIR writes it between quotes."""
    encoded = text.encode("utf-8", errors="surrogateescape")
    return "".join(chr(byte) if byte in _PRINTABLE else f"\\{byte:02X}" for byte in encoded)


def render_symbol(name: str) -> str:
    """Return the reference to a symbol, quoted only where it must be."""
    return f"@{name}" if _BARE_NAME.fullmatch(name) else f'@"{escape(name)}"'


def parse_symbol(token: str) -> str:
    """Return the name that a reference to a symbol spells."""
    return unescape(token[2:-1]) if token.startswith('@"') else token[1:]


def rename_values(text: str, names: Mapping[str, str]) -> str:
    """Return the text with other names for some values."""
    return MLIR.replace(_VALUE, lambda match: names.get(match[0], match[0]), text)


def replace_names(text: str, made: Callable[[str], str]) -> str:
    """Return the text with other names for its values, blocks and aliases."""
    return _NAME.sub(lambda match: match[0] if match[0][0] == '"' else made(match[0]), text)
