"""Lazily compiled and cached regular expressions, patterns of LLVM IR, and a bracket matcher.

An invocation uses about a hundred patterns. Compiling them takes 10 ms, loading them from the cache 1 ms.

Patterns of LLVM IR are spelled as the text that they match, with holes in backquotes:
`` call void @f(ptr `address:local`) `` matches that call, and captures the address. A hole is a key of `_HOLES` or
a list of alternatives (`` `row|col` ``). It is captured if it has a name, and optional if it ends in `?`.
`` `all:(` `` and `` `)` `` enclose a group, which can be captured or optional.

`Syntax` finds matching brackets and splits lists, which regular expressions cannot do, and ignores the text of
strings and comments.
"""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import AnyStr, cast


class _LazyPattern:
    """A proxy of a compiled pattern. It copies each attribute of the pattern at the first access."""

    def __init__(self, compile_it: Callable[[], re.Pattern[str] | re.Pattern[bytes]]) -> None:
        self.__compile = compile_it

    def __getattr__(self, name: str) -> object:
        found = self.__compile()
        self.__compile = lambda: found
        member = getattr(found, name)
        setattr(self, name, member)
        return member


def pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that is compiled when it is first used."""
    return pattern_of(lambda: compiled(source, flags))


def pattern_of(compile_it: Callable[[], re.Pattern[AnyStr]]) -> re.Pattern[AnyStr]:
    """Return a regular expression that the function compiles when it is first used."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(compile_it))


def compiled(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return `re.compile(source, flags)`, from the cache if possible."""
    return _store().compiled(source, int(flags))


def keep_patterns() -> None:
    """Write the patterns that this process compiled to the cache."""
    _store().save()


class PatternStore:
    """A cache file of compiled patterns next to the bytecode of this module, for one release of Python.

    `re` cannot store a compiled pattern; unpickling one compiles it again. The cache contains the arguments that
    `re._compiler.compile` passes to `_sre.compile`, which checks them. If a release of Python takes other arguments,
    the patterns are compiled. The translations of LLVM IR patterns are cached too, until this module changes.
    """

    def __init__(self, file: Path) -> None:
        """Read the file, unless another release of Python wrote it."""
        self._file = file
        own = os.stat(__file__)  # noqa: PTH116 (at each start)
        self._stamp = (sys.hexversion, sys.implementation.name, own.st_mtime_ns, own.st_size)
        self._parts: dict[tuple[str | bytes, int], bytes] = {}
        self._translations: dict[tuple[str, bool], str] = {}
        self._is_changed = False
        with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
            stamp, *kept = marshal.loads(file.read_bytes())  # noqa: S302 (trusted as modules are)
            if stamp == self._stamp:
                self._parts, self._translations = kept

    def compiled(self, source: AnyStr, flags: int) -> re.Pattern[AnyStr]:
        """Return `re.compile(source, flags)`."""
        kept = self._parts.get((source, flags))
        try:
            make: Callable[..., re.Pattern[AnyStr]] = import_module("_sre").compile
            if kept is not None:
                return make(source, *marshal.loads(kept))  # noqa: S302 (as above)
            parts = _compiled_parts(source, flags)
            found = make(source, *parts)
        except (ImportError, AttributeError, TypeError, ValueError, EOFError, RuntimeError):
            return re.compile(source, flags)
        self._parts[source, flags] = marshal.dumps(parts)
        self._is_changed = True
        return found

    def translated(self, template: str, *, is_line: bool = False) -> str:
        """Return the regular expression for a pattern of LLVM IR."""
        found = self._translations.get((template, is_line))
        if found is None:
            found = self._translations[template, is_line] = _translated(template, is_line=is_line)
            self._is_changed = True
        return found

    def save(self) -> None:
        """Write the file atomically if a pattern was added, because other processes may read it."""
        if not self._is_changed or sys.dont_write_bytecode:
            return
        temporary = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            try:
                temporary.write_bytes(marshal.dumps((self._stamp, self._parts, self._translations)))
                temporary.replace(self._file)
            finally:
                temporary.unlink(missing_ok=True)


def _compiled_parts(
    source: str | bytes, flags: int
) -> tuple[int, list[int], int, dict[str, int], tuple[str | None, ...]]:
    """Return the arguments of `_sre.compile` after the source: flags, code, number and names of groups."""
    parsed = import_module("re._parser").parse(source, flags)
    state = parsed.state
    names: list[str | None] = [None] * state.groups
    for name, number in state.groupdict.items():
        names[number] = name
    code = [int(word) for word in import_module("re._compiler")._code(parsed, flags)]  # noqa: SLF001
    return flags | state.flags, code, state.groups - 1, state.groupdict, tuple(names)


@cache
def _store() -> PatternStore:
    return PatternStore(Path(importlib.util.cache_from_source(__file__)).with_suffix(".patterns"))


_HOLE = pattern(r"`(?:(?P<name>\w+):)?(?P<kind>[^`?]*)(?P<optional>\??)`")
_SPELLED = r'(?:"[^"\n]*"|[-\w$.]+)'
_HOLES = {
    "global": f"@{_SPELLED}",
    "local": f"%{_SPELLED}",
    # A name without its sigil.
    "name": _SPELLED,
    "bare": r"[-\w$.]+",
    "number": r"\d+",
    "float": r"-?\d[\d.]*e[+-]\d+",
    "integer": r"-?\d+",
    "word": r"\w+",
    "letters": r"[a-z]+",
    "dotted": r"[\w.]+",
    # Linkage, visibility and attributes, each followed by a space.
    "words": r"(?:[a-z_]+(?:\([^()\n]*\))? +)*",
    "string": r'[^"\n]*',
    "struct": r"(?:%[\w.]+|\{[^{}\n]*\})",
    "members": r"[^{}\n]*",
    "operand": r"[^\s,()]+",
    # A symbol, and a pointer to a function, as bare names.
    "callee": r"[@%][-\w$.]+",
    "node": r"!\d+",
    "indent": r" *",
    # The vector prefix of an element type in the name of an intrinsic.
    "lanes": r"(?:v\d+)?",
    "type_name": r"%[-\w$.]+|\w+",
    "result": r"(?:%[-\w$.]+ = )?",
    "incoming": r"(?:[^\[\]]|\[[^\]]*\])*?",
    "argument": r"(?:\w+\([^()]*\)|noundef|nonnull|signext|zeroext|inreg|noalias|fastcc|ccc)",
    "fast_flags": r"(?:(?:fast|nnan|ninf|nsz|arcp|contract|afn|reassoc) )*",
    "flags": r"(?: [a-z]+(?:\([^()]*\))?)*",
    "inserted": r"[$\d, ]+",
    "value": r"[^,\n]+?",
    "addrspace": r" addrspace\(\d+\)",
    "align": r", align \d+",
    # `, !dbg !7` of an instruction or a variable. The attachments of a function have no comma.
    "metadata": r"(?:, ![\w.]+ !\d+)*",
    "attachments": r"(?: ![\w.]+ !\d+)*",
    # The text before the name of a function in its first line.
    "head": r"[^@\n]*",
    "some": r"[^\n]*?",
    "rest": r"[^\n]*",
    "lines": r"(?:[^}\n][^\n]*\n|\n)*",
    "end": r"$",
    # The start of a word, the end of a name or of a part of it, the continuation or end of a list.
    "start": r"(?<![-\w$.%@!#\"])",
    "name_end": r"(?![-\w$.\"])",
    "part_end": r"(?=[.\s(]|$)",
    "item_end": r"(?:,|$)",
}
_SIGILS = {"global": "@", "local": "%"}
_NAME_ENDS = r"(?![-\w$.])"
_NAME_CHARACTER = r"[-\w$.%@!#\"]"
_WORD_BEFORE, _WORD_BEHIND = f"(?<!{_NAME_CHARACTER})", r"(?![-\w$.:\"])"


def ir_pattern(template: str) -> re.Pattern[str]:
    """Return a pattern that matches the template anywhere. Words at its ends match whole words only."""
    return pattern_of(lambda: compiled(_store().translated(template), re.MULTILINE))


def ir_line(template: str) -> re.Pattern[str]:
    """Return a pattern that matches the template at the start of a line."""
    return pattern_of(lambda: compiled(_store().translated(template, is_line=True), re.MULTILINE))


def ir_line_bytes(template: str) -> re.Pattern[bytes]:
    """Return a pattern that matches the template at the start of a line of bytes."""
    return pattern_of(
        lambda: compiled(_store().translated(template, is_line=True).encode(), re.MULTILINE)
    )


def ir_words(*words: str) -> re.Pattern[str]:
    """Return a pattern that matches one of the words and the space after it."""
    return compiled(f"{_WORD_BEFORE}(?:{'|'.join(map(re.escape, words))}) ")


def ir_any(texts: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the texts, also within words; longer texts take precedence."""
    ordered = sorted(texts, key=lambda text: (-len(text), text))
    return compiled("|".join(map(re.escape, ordered)))


def _translated(template: str, *, is_line: bool = False) -> str:
    parts: list[str] = []
    done = 0
    for hole in _HOLE.finditer(template):
        parts += [re.escape(template[done : hole.start()]), _translated_hole(hole)]
        done = hole.end()
    expression = "".join((*parts, re.escape(template[done:])))
    if is_line or _is_word(template[0]):
        group, begin = _begin(template)
        before = f"(?<=^{begin})" if is_line else f"(?<!{_NAME_CHARACTER}{begin})"
        expression = f"{group}{begin}{before}{expression[len(group + begin) :]}"
    return f"{expression}{_WORD_BEHIND * _is_word(template[-1])}"


def _begin(template: str) -> tuple[str, str]:
    """Return the characters that each match begins with as a regular expression, and the start of their group.

    The condition for the text before a match is behind these characters: `re` searches for characters several
    times as fast as it tries a condition at each place.
    """
    hole = _HOLE.match(template)
    if hole is None:
        return "", re.escape(template.partition("`")[0])
    if hole["kind"] not in _SIGILS or hole["optional"]:
        return "", ""
    sigil = _SIGILS[hole["kind"]]
    return _translated_hole(hole).partition(sigil)[0], sigil


def ir_reference(reference: str) -> re.Pattern[str]:
    """Return a pattern that matches exactly this name with its sigil, not a longer name."""
    return compiled(f"{re.escape(reference)}{_NAME_ENDS}")


def _translated_hole(hole: re.Match[str]) -> str:
    kind = hole["kind"]
    if kind == ")":
        return f"){hole['optional']}"
    if kind == "(":
        return f"(?P<{hole['name']}>" if hole["name"] else "(?:"
    found = _HOLES.get(kind) or "|".join(map(re.escape, kind.split("|")))
    group = f"?P<{hole['name']}>" if hole["name"] else "?:"
    if hole["optional"] and hole["name"]:
        # The group then captures an empty string instead of None.
        return f"({group}(?:{found})?)"
    return f"({group}{found}){hole['optional']}"


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_CLOSERS = frozenset(_CLOSING.values())
# A character that no pattern for code matches.
_FILLER = "\0"


class Syntax:
    """The lexical syntax of a language: opaque text (strings, quoted names, comments) and operators."""

    def __init__(self, opaque: str, operators: str = "") -> None:
        """Take patterns for opaque text and for operators that contain a bracket."""
        joined = f"|{operators}" if operators else ""
        self._opaque = pattern(opaque)
        self._mark = pattern(rf"{opaque}{joined}|[()\[\]{{}}<>,]")

    def closing(self, text: str, start: int) -> int:
        """Return the position of the bracket that closes the one at `start`. Raises ValueError if there is none."""
        depth = 0
        for match in self._mark.finditer(text, start):
            mark = match[0]
            if mark in _CLOSING:
                depth += 1
            elif mark in _CLOSERS:
                depth -= 1
            if depth == 0:
                return match.start()
        msg = f"unbalanced brackets: {text}"
        raise ValueError(msg)

    def enclosing(self, text: str, position: int) -> list[int]:
        """Return the positions of the brackets that are open at a position, the innermost last."""
        opened: list[int] = []
        for place, mark in self._marks(text, 0):
            if place >= position:
                break
            if mark in _CLOSING:
                opened.append(place)
            elif mark in _CLOSERS and opened:
                opened.pop()
        return opened

    def unclosed(self, text: str, position: int) -> int | None:
        """Return the position of the brace that most likely lacks its closing brace, None if none is open.

        This is the first brace whose closing brace has the indentation of an enclosing block, otherwise
        the innermost brace that is open at the position.
        """
        opened: list[int] = []
        for place, mark in self._marks(text, 0):
            if mark == "{":
                opened.append(place)
            elif mark == "}" and opened:
                last, indentation = opened.pop(), _indentation(text, place)
                around = {_indentation(text, outer) for outer in opened}
                if indentation in around - {_indentation(text, last)}:
                    return last
        braces = [place for place in self.enclosing(text, position) if text[place] == "{"]
        return braces[-1] if braces else None

    def inside(self, text: str, start: int) -> str:
        """Return the text between the bracket at `start` and its closing bracket."""
        return text[start + 1 : self.closing(text, start)]

    def split_list(self, text: str) -> list[str]:
        """Split at commas outside of brackets. The list of an empty text is empty."""
        parts: list[str] = []
        depth = start = 0
        for match in self._mark.finditer(text):
            mark = match[0]
            if mark in _CLOSING:
                depth += 1
            elif mark in _CLOSERS:
                depth -= 1
            elif mark == "," and depth == 0:
                parts.append(text[start : match.start()].strip())
                start = match.end()
        last = text[start:].strip()
        return [*parts, last] if last else parts

    def blanked(self, text: str) -> str:
        """Return the text with its opaque pieces overwritten; the length stays the same."""
        return self._opaque.sub(_blank, text)

    def without(self, text: str, start: str) -> str:
        """Remove the opaque pieces that begin with `start`, such as comments."""
        return self._opaque.sub(lambda piece: "" if piece[0].startswith(start) else piece[0], text)

    def replace(
        self, pattern: re.Pattern[str], made: Callable[[re.Match[str]], str], text: str
    ) -> str:
        """Replace the matches in code. The groups of a match have no opaque text."""
        if pattern.search(text) is None:
            return text
        parts, done = [], 0
        for match in pattern.finditer(self.blanked(text)):
            parts += [text[done : match.start()], made(match)]
            done = match.end()
        return "".join((*parts, text[done:]))

    def search(self, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
        """Return the first match in code. Its groups have no opaque text."""
        return pattern.search(self.blanked(text)) if pattern.search(text) else None

    def _marks(self, text: str, start: int) -> Iterator[tuple[int, str]]:
        return ((match.start(), match[0]) for match in self._mark.finditer(text, start))


def _indentation(text: str, position: int) -> int:
    """Return the number of leading spaces of the line at a position."""
    start = text.rfind("\n", 0, position) + 1
    return len(text[start:position]) - len(text[start:position].lstrip())


def _blank(piece: re.Match[str]) -> str:
    text = piece[0]
    first, last = text.find('"'), len(text) - 1
    if first < 0 or first == last:
        return _FILLER * len(text)
    return f"{text[: first + 1]}{_FILLER * (last - first - 1)}{text[last]}"
