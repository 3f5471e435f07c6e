"""Errors of the parser whose cause is a brace that is missing, or one too many."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.toolchain.errors import Note, SourceError
from mlir_offload.translate import tool_message
from mlir_offload.translate.mlir.syntax import MLIR, tokens

# The parser of mlir-opt expects an operation where a closing brace is missing or one is too many.
_NO_OPERATION = "expected operation name in quotes"
# Only a region of func.func knows `return` without its dialect.
_BARE_RETURN = "not found for custom op 'return'"
_CONFLICT_MARKERS = ("<<<<<<<", "=======", ">>>>>>>")


def brace_error(diagnostic: tool_message.ToolMessage, source: Path) -> SourceError | None:
    """Return the error for braces that do not match, None for any other cause."""
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
        # The text is clang's.
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
