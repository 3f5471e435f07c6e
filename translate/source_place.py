"""Find the cause of an mlir-opt error in the source, if mlir-opt reports another location."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from mlir_offload.toolchain.errors import Note, SourceError
from mlir_offload.translate import tool_message
from mlir_offload.translate.mlir.syntax import MLIR, tokens

_CONSTANT = "arith.constant "
_TENSOR = "tensor<"
_DEFINE_SYMBOLS = frozenset(("func.func", "gpu.func", "gpu.module", "llvm.func"))
_VISIBILITIES = frozenset(("private", "public", "nested"))
_NAME_ENDS = frozenset(" \t,:)]=({[#")
# The error of mlir-opt's parser for a missing or an extra closing brace.
_NO_OPERATION = "expected operation name in quotes"
# `return` without its dialect is valid only in a region of func.func.
_BARE_RETURN = "not found for custom op 'return'"
_CONFLICT_MARKERS = ("<<<<<<<", "=======", ">>>>>>>")


def word_at(line: str, column: int) -> str:
    """Return the name of the value at a column, which starts at 1."""
    return _name(line[column - 1 :])


def values_before(source: Path, line: int) -> list[str]:
    """Return the names of the values in the lines before `line`."""
    lines = _lines(source)[: max(line - 1, 0)]
    return list(dict.fromkeys(name for text in lines for _, name in _values(text)))


def defined_symbols(source: Path) -> list[str]:
    """Return the functions and modules that a program defines, with `@`."""
    words = [word for word in tokens("\n".join(_lines(source))) if word not in _VISIBILITIES]
    pairs = itertools.pairwise(words)
    return [name for before, name in pairs if before in _DEFINE_SYMBOLS and name[0] == "@"]


def literal_place(source: Path, line: int, column: int) -> str:
    """Return the location of a constant's literal, if the parser reports the token after it.

    The result is empty if the token is in the same line, or if the line before has no constant.
    """
    lines = _lines(source)
    if not 0 < line <= len(lines) or lines[line - 1][: column - 1].strip():
        return ""
    for number in range(line - 1, 0, -1):
        text = lines[number - 1]
        if text.strip():
            start = text.rfind(_CONSTANT)
            return f"{source}:{number}:{start + len(_CONSTANT) + 1}" if start >= 0 else ""
    return ""


def captured_tensor(source: Path, line: int) -> str:
    """Return the location of the first tensor that the body of the gpu.launch at a line uses."""
    lines = _lines(source)
    if not 0 < line <= len(lines) or "gpu.launch " not in lines[line - 1]:
        return ""
    defined: set[str] = set()
    for number, text in enumerate(lines[line:], line + 1):
        head, equals, operands = text.partition(" = ")
        if equals:
            defined.update(name for _, name in _values(head))
        start = len(head) + len(equals) if equals else 0
        if _TENSOR in text:
            used = (place for place, name in _values(operands or head) if name not in defined)
            first = next(used, None)
            if first is not None:
                return f"{source}:{number}:{start + first + 1}"
    return ""


def _values(text: str) -> Iterator[tuple[int, str]]:
    """Yield the offsets and names of the values in a line."""
    start = text.find("%")
    while start >= 0:
        name = _name(text[start:])
        yield start, name
        start = text.find("%", start + len(name))


def _name(text: str) -> str:
    end = next((place for place, one in enumerate(text) if one in _NAME_ENDS), len(text))
    return text[: max(end, 1)]


def _lines(source: Path) -> list[str]:
    try:
        return source.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def brace_error(diagnostic: tool_message.ToolMessage, source: Path) -> SourceError | None:
    """Return the error for unbalanced braces, None for any other cause."""
    is_return = _BARE_RETURN in diagnostic.text
    if not (is_return or _NO_OPERATION in diagnostic.text) or diagnostic.file != str(source):
        return None
    try:
        text = source.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    position = _position(text, diagnostic.line, diagnostic.column)
    if is_return:
        error = SourceError(
            "'return' is not the terminator of this region",
            hint="close the region with '}' before it, or write func.return",
            location=diagnostic.location,
        )
        return _with_note(error, text, source, position)
    rest = MLIR.without(text[position:], "//").strip()
    if not rest:
        error = SourceError(
            "expected '}' before the end of the file",
            hint="close every '{' with '}'",
            location=diagnostic.location,
        )
        return _with_note(error, text, source, position)
    place = _location(text, source, text.index(rest[0], position))
    if rest.startswith("}") and not MLIR.enclosing(text, position):
        msg = "extraneous closing brace ('}')"
        return SourceError(msg, hint="remove it", location=place)
    return _no_operation(
        rest, is_first=not MLIR.without(text[:position], "//").strip(), place=place
    )


def _no_operation(rest: str, *, is_first: bool, place: str) -> SourceError:
    if rest.startswith(_CONFLICT_MARKERS):
        # The wording of clang.
        msg = "version control conflict marker in file"
        return SourceError(msg, hint="resolve the conflict, then remove the marker", location=place)
    msg = f"expected an operation, found '{tokens(rest)[0]}'"
    hint = "" if is_first else "check the end of the operation before it: is a ':' or ',' missing?"
    return SourceError(msg, hint=hint, location=place)


def _with_note(error: SourceError, text: str, source: Path, position: int) -> SourceError:
    opened = MLIR.unclosed(text, position)
    if opened is not None:
        error.notes = (Note("to match this '{'", _location(text, source, opened)),)
    return error


def _location(text: str, source: Path, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return f"{source}:{line}:{column}"


def _position(text: str, line: int, column: int) -> int:
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + column - 1
