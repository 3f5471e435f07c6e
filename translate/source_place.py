"""Places in a program that an error of mlir-opt is about, where the tool names another one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from mlir_offload.translate.mlir.syntax import tokens

_CONSTANT = "arith.constant "
_TENSOR = "tensor<"
_DEFINE_SYMBOLS = frozenset(("func.func", "gpu.func", "gpu.module", "llvm.func"))
_VISIBILITIES = frozenset(("private", "public", "nested"))
_NAME_ENDS = frozenset(" \t,:)]=({[#")


def word_at(line: str, column: int) -> str:
    """Return the name of a value that begins at a column, counted from 1."""
    return _name(line[column - 1 :])


def values_before(source: Path, line: int) -> list[str]:
    """Return the names of values in the lines up to that of a use, without those of the line itself."""
    lines = _lines(source)[: max(line - 1, 0)]
    return list(dict.fromkeys(name for text in lines for _, name in _values(text)))


def defined_symbols(source: Path) -> list[str]:
    """Return the functions and modules that a program defines, as `@name`."""
    words = [word for word in tokens("\n".join(_lines(source))) if word not in _VISIBILITIES]
    pairs = itertools.pairwise(words)
    return [name for before, name in pairs if before in _DEFINE_SYMBOLS and name[0] == "@"]


def literal_place(source: Path, line: int, column: int) -> str:
    """Return the place of a constant's literal, of which the parser names the token after it.

    Empty if that token is in the same line, or if the line before has no constant.
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
    """Return the place of the first tensor that the body of a gpu.launch at a line uses."""
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
    """Yield the values that a line names, each with its offset."""
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
