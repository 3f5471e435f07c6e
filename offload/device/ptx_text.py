"""Tokenize PTX: directives, tokens, variable declarations."""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import Struct

from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.errors import VerificationError

# The starts of declarations, and braces. The preceding character distinguishes a directive from a part of an
# instruction such as `ld.shared.f32`.
_LANDMARK = re.compile(
    rb"//[^\n]*|/\*|\"[^\"\n]*\"?|[{}]"
    rb"|\.(?<![\w$%.]\.)(?:version|target|address_size|extern|entry|func|global|const|shared)\b"
)
# A brace after a comment or quote on its line, or inside a comment of several lines, may not be a token.
# Patterns that begin with one character are much faster to search than a pattern of both, or than `/*`.
_HIDDEN_BRACES = (re.compile(rb"/(?:/[^\n{}]*+[{}]|\*)"), re.compile(rb"\"[^\n{}]*+[{}]"))
_DECLARED_SHARED = re.compile(rb"\.shared\b(?<![\w$%.]\.shared)")
_TOKEN = re.compile(rb"\s+|//[^\n]*|/\*|\"[^\"\n]*\"?|\.?[\w$%][\w$.]*+(?:::\w++)*|.")
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]{1,16}|0[bB][01]{1,64}|[0-9]{1,20})U?")
_LARGEST = 1 << 64

# The fundamental types (PTX ISA, "Fundamental Types" and "Alternate Floating-Point Data Formats").
_TYPE_BYTES = {
    ".b8": 1, ".u8": 1, ".s8": 1,
    ".b16": 2, ".u16": 2, ".s16": 2, ".f16": 2, ".bf16": 2,
    ".b32": 4, ".u32": 4, ".s32": 4, ".f32": 4, ".f16x2": 4, ".bf16x2": 4,
    ".b64": 8, ".u64": 8, ".s64": 8, ".f64": 8,
    ".b128": 16,
    # A texture, sampler or surface is bound to its reference, not passed as an argument.
    ".texref": 0, ".samplerref": 0, ".surfref": 0,
}  # fmt: skip
_VECTORS = {".v2": 2, ".v4": 4, ".v8": 8}


class PtxVariable(Struct, frozen=True):
    """A variable or parameter: its name, type, size and alignment in bytes; `size_bytes` is 0 for `d[]`."""

    name: str
    type: str
    size_bytes: int
    alignment: int


class PtxScanner:
    """A position in the text that only moves forward, so that parsing is linear in its length."""

    __slots__ = ("_data", "_place", "view")

    def __init__(self, view: ByteView) -> None:
        """Read the text, without the trailing NULs that fat binaries add."""
        data = view.whole()
        self.view = view
        self._data = data.rstrip(b"\0") if data.endswith(b"\0") else data
        self._place = 0

    def landmark(self) -> str:
        """Return the next brace or directive of a declaration; empty at the end."""
        while (text := self._next(_LANDMARK)).startswith('"'):
            pass
        return text

    def plain_body_end(self) -> int:
        """Return the position of the brace that ends the body just entered; -1 if it must be tokenized.

        Counting braces takes far less time than tokenizing the text between them.
        """
        data, place, depth = self._data, self._place, 1
        end = place
        while depth:
            end = data.find(b"}", place)
            if end < 0:
                return -1
            depth += data.count(b"{", place, end) - 1
            place = end + 1
        is_hidden = any(one.search(data, self._place, end + 1) for one in _HIDDEN_BRACES)
        return -1 if is_hidden else end

    def next_shared(self, end: int) -> bool:
        """Move past the next `.shared` of a declaration before `end`; return whether there is one."""
        match = _DECLARED_SHARED.search(self._data, self._place, end)
        if match is not None:
            self._place = match.end()
        return match is not None

    def leave_body(self, end: int) -> None:
        """Move past the brace of a body that ends there."""
        self._place = end + 1

    def token(self) -> str:
        """Return the next token, a string with its quotes; empty at the end."""
        return self._next(_TOKEN)

    def required_token(self, field: str) -> str:
        """Return the next token. Raises VerificationError at the end."""
        word = self.token()
        if not word:
            raise self.malformed(field=field, reason="the text ends within it")
        return word

    def number(self, field: str) -> int:
        """Return the number that follows. Raises VerificationError if none does."""
        return self.parse_number(self.required_token(field), field)

    def parse_number(self, word: str, field: str) -> int:
        """Return the value of an integer constant (PTX ISA, "Integer Constants")."""
        found = _NUMBER.fullmatch(word)
        if found is None:
            raise self.malformed(field=field, reason=f"'{word[:40]}' is not a number")
        digits = found[1]
        is_octal = digits.startswith("0") and digits.isdigit() and len(digits) > 1
        try:
            return int(digits, 8 if is_octal else 0)
        except ValueError as error:
            raise self.malformed(field=field, reason=f"'{digits}' is not a number") from error

    def dimensions(self, field: str) -> tuple[int, int, int]:
        """Return up to three numbers that follow; the default is 1."""
        x = self.number(field)
        y = self.number(field) if self._skip_comma() else 1
        z = self.number(field) if self._skip_comma() else 1
        return x, y, z

    def skip_past(self, end: str) -> None:
        """Move past a token."""
        while self.required_token(end) != end:
            pass

    def skip_group(self) -> None:
        """Move past the bracket that closes the one just read."""
        depth = 1
        while depth:
            word = self.required_token("bracket")
            depth += (word in "([") - (word in ")]")

    def malformed(self, *, field: str, reason: str) -> VerificationError:
        """Return an error at the current position."""
        return self.view.malformed(min(self._place, self.view.size), field, reason)

    def _skip_comma(self) -> bool:
        place = self._place
        if self.token() == ",":
            return True
        self._place = place
        return False

    def _next(self, pattern: re.Pattern[bytes]) -> str:
        """Return the next match that is not a comment or white space; empty at the end."""
        while (match := pattern.search(self._data, self._place)) is not None:
            self._place = match.end()
            text = match[0]
            if text == b"/*":
                self._skip_comment()
            elif not text.startswith(b"//") and not text.isspace():
                return text.decode(errors="replace")
        return ""

    def _skip_comment(self) -> None:
        end = self._data.find(b"*/", self._place)
        if end < 0:
            raise self.malformed(field="comment", reason="it has no end")
        self._place = end + 2


def read_variable(scanner: PtxScanner, ends: Collection[str]) -> tuple[PtxVariable, str]:
    """Read a declaration after its state space, and the token of `ends` that ends it.

    Raises VerificationError if it has no type or no name.
    """
    name = kind = ""
    vector, count, alignment = 1, 1, 0
    is_pointee = False  # the attributes after `.ptr` describe the memory that is pointed to
    while (word := scanner.required_token("variable")) not in ends:
        if word == ".align":
            number = scanner.number("alignment")
            alignment = alignment if is_pointee else max(1, number)
        elif word == "[":
            count = min(count * _read_extent(scanner), _LARGEST)
        elif word in _TYPE_BYTES:
            kind = word
        elif not word.startswith("."):
            name = name or word
        vector = _VECTORS.get(word, vector)
        is_pointee = is_pointee or word == ".ptr"
    if not kind or not name:
        raise scanner.malformed(field="variable", reason=f"'{name}' has no type or no name")
    element = _TYPE_BYTES[kind] * vector
    return PtxVariable(name, kind, element * count, alignment or max(1, element)), word


def place_after(end: int, variable: PtxVariable) -> int:
    """Return the offset of a variable after others that end at `end`."""
    return -(-end // variable.alignment) * variable.alignment


def _read_extent(scanner: PtxScanner) -> int:
    """Return the number of elements in brackets; 0 for `[]`, whose size is passed at launch."""
    word = scanner.required_token("extent")
    if word == "]":
        return 0
    number = scanner.parse_number(word, "extent")
    if scanner.required_token("extent") != "]":
        raise scanner.malformed(field="extent", reason="its bracket is not closed")
    return number
