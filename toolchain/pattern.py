"""Regular expressions that are compiled when they are first used, and kept for the next call; LLVM IR's, and brackets.

A call uses about a hundred of all that there are. Compiling them takes 10 ms, loading them 1.

Patterns of LLVM IR are spelled as the text that they match, with holes in backquotes:
`` call void @f(ptr `address:local`) `` matches that call, and captures the address. A hole is a kind of `_HOLES` or
literal alternatives (`` `row|col` ``), has a name if it is captured, and is optional if it ends in `?`. `` `all:(` ``
and `` `)` `` enclose what is captured, or optional, as a whole.

What no regular expression can match are the brackets and lists of a language: a `Syntax` finds them, and never takes
text in strings for code.
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
    """Stands for a compiled pattern, each member of which it takes over with its first use."""

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
    """Return a regular expression that the function makes when it is first used."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(compile_it))


def compiled(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return `re.compile(source, flags)`, from what an earlier call kept of it if possible."""
    return _store().compiled(source, int(flags))


def keep_patterns() -> None:
    """Keep the patterns that this call compiled for the next one."""
    _store().save()


class PatternStore:
    """Compiled patterns in a file, kept as Python keeps its modules: next to them, for one release of Python.

    `re` has no way to keep a pattern: pickle compiles it again. The parts are those that `re._compiler.compile`
    gives to `_sre.compile`, which checks them. If a release of Python has other parts, patterns are compiled.
    What patterns of LLVM IR are translated to is kept, too, for as long as this module is the same file.
    """

    def __init__(self, file: Path) -> None:
        """Read what the file holds, if it is of this Python."""
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
        """Write the file if a pattern is new, in one rename: other processes read it meanwhile."""
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
    """Return what `_sre.compile` takes besides the source: flags, code, number and names of groups."""
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
    # Linkage, visibility, attributes: each with the space that follows it.
    "words": r"(?:[a-z_]+(?:\([^()\n]*\))? +)*",
    "string": r'[^"\n]*',
    "struct": r"(?:%[\w.]+|\{[^{}\n]*\})",
    "members": r"[^{}\n]*",
    "operand": r"[^\s,()]+",
    # A symbol, and a pointer to a function, as bare names.
    "callee": r"[@%][-\w$.]+",
    "node": r"!\d+",
    "indent": r" *",
    # Before the type of the elements in an intrinsic's name.
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
    # `, !dbg !7` of an instruction or a variable; a function has no comma there.
    "metadata": r"(?:, ![\w.]+ !\d+)*",
    "attachments": r"(?: ![\w.]+ !\d+)*",
    # What precedes the name of a function in its first line.
    "head": r"[^@\n]*",
    "some": r"[^\n]*?",
    "rest": r"[^\n]*",
    "lines": r"(?:[^}\n][^\n]*\n|\n)*",
    "end": r"$",
    # Where a word begins, a part of an intrinsic's name ends, a list goes on or ends.
    "start": r"(?<![-\w$.%@!#\"])",
    "name_end": r"(?![-\w$.\"])",
    "part_end": r"(?=[.\s(]|$)",
    "item_end": r"(?:,|$)",
}
_NAME_ENDS = r"(?![-\w$.])"
_WORD_BEFORE, _WORD_BEHIND = r"(?<![-\w$.%@!#\"])", r"(?![-\w$.:\"])"


def ir_pattern(template: str) -> re.Pattern[str]:
    """Return what matches a template anywhere; one that begins or ends in a word matches no part of a word."""
    return pattern_of(lambda: compiled(_store().translated(template), re.MULTILINE))


def ir_line(template: str) -> re.Pattern[str]:
    """Return what matches a template where a line begins."""
    return pattern_of(
        lambda: compiled(f"^{_store().translated(template, is_line=True)}", re.MULTILINE)
    )


def ir_line_bytes(template: str) -> re.Pattern[bytes]:
    """Return what matches a template where a line of bytes begins."""
    return pattern_of(
        lambda: compiled(f"^{_store().translated(template, is_line=True)}".encode(), re.MULTILINE)
    )


def ir_words(*words: str) -> re.Pattern[str]:
    """Return what matches one of these words, with the space that follows it."""
    return compiled(f"{_WORD_BEFORE}(?:{'|'.join(map(re.escape, words))}) ")


def ir_any(texts: Iterable[str]) -> re.Pattern[str]:
    """Return what matches any of these texts, also as a part of a word; the longest first."""
    ordered = sorted(texts, key=lambda text: (-len(text), text))
    return compiled("|".join(map(re.escape, ordered)))


def _translated(template: str, *, is_line: bool = False) -> str:
    parts: list[str] = []
    done = 0
    for hole in _HOLE.finditer(template):
        parts += [re.escape(template[done : hole.start()]), _translated_hole(hole)]
        done = hole.end()
    parts.append(re.escape(template[done:]))
    starts = not is_line and _is_word(template[0])
    ends = _is_word(template[-1])
    return f"{_WORD_BEFORE * starts}{''.join(parts)}{_WORD_BEHIND * ends}"


def ir_reference(reference: str) -> re.Pattern[str]:
    """Return what matches a name with its sigil, and no longer name."""
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
        # The group is empty rather than absent.
        return f"({group}(?:{found})?)"
    return f"({group}{found}){hole['optional']}"


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_CLOSERS = frozenset(_CLOSING.values())
# No pattern for code matches it.
_FILLER = "\0"


class Syntax:
    """A language: how it writes what is opaque (strings, quoted names, comments), and its operators."""

    def __init__(self, opaque: str, operators: str = "") -> None:
        """Take the patterns of opaque text, and of operators that contain a bracket."""
        joined = f"|{operators}" if operators else ""
        self._opaque = pattern(opaque)
        self._mark = pattern(rf"{opaque}{joined}|[()\[\]{{}}<>,]")

    def closing(self, text: str, start: int) -> int:
        """Return where the bracket at `start` is closed. Raises ValueError if it is not."""
        depth = 0
        for place, mark in self._marks(text, start):
            depth += (mark in _CLOSING) - (mark in _CLOSERS)
            if depth == 0:
                return place
        msg = f"unbalanced brackets: {text}"
        raise ValueError(msg)

    def enclosing(self, text: str, position: int) -> list[int]:
        """Return the brackets that are open at a position, the innermost last."""
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
        """Return the brace that most likely lacks its closing one; None if none is open.

        That is the first one whose closing brace has the indentation of a block around it, else the
        innermost that is open at the position.
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
        """Return the text between the bracket at `start` and the one that closes it."""
        return text[start + 1 : self.closing(text, start)]

    def split_list(self, text: str) -> list[str]:
        """Split at the commas outside of brackets; an empty text is an empty list."""
        parts: list[str] = []
        depth = start = 0
        for place, mark in self._marks(text, 0):
            if mark == "," and depth == 0:
                parts.append(text[start:place].strip())
                start = place + 1
            else:
                depth += (mark in _CLOSING) - (mark in _CLOSERS)
        last = text[start:].strip()
        return [*parts, last] if last else parts

    def blanked(self, text: str) -> str:
        """Return the text, equally long, with nothing in its strings and comments."""
        return self._opaque.sub(_blank, text)

    def without(self, text: str, start: str) -> str:
        """Return the text without its opaque pieces that begin so, such as comments."""
        return self._opaque.sub(lambda piece: "" if piece[0].startswith(start) else piece[0], text)

    def replace(
        self, pattern: re.Pattern[str], made: Callable[[re.Match[str]], str], text: str
    ) -> str:
        """Replace what a pattern finds in code; its groups hold nothing opaque."""
        if pattern.search(text) is None:
            return text
        parts, done = [], 0
        for match in pattern.finditer(self.blanked(text)):
            parts += [text[done : match.start()], made(match)]
            done = match.end()
        return "".join((*parts, text[done:]))

    def search(self, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
        """Return the first match in code, whose groups hold nothing opaque."""
        return pattern.search(self.blanked(text)) if pattern.search(text) else None

    def _marks(self, text: str, start: int) -> Iterator[tuple[int, str]]:
        return ((match.start(), match[0]) for match in self._mark.finditer(text, start))


def _indentation(text: str, position: int) -> int:
    """Return how many spaces the line of a position begins with."""
    start = text.rfind("\n", 0, position) + 1
    return len(text[start:position]) - len(text[start:position].lstrip())


def _blank(piece: re.Match[str]) -> str:
    text = piece[0]
    first, last = text.find('"'), len(text) - 1
    if first < 0 or first == last:
        return _FILLER * len(text)
    return f"{text[: first + 1]}{_FILLER * (last - first - 1)}{text[last]}"
