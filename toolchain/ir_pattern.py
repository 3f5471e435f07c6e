"""Patterns of LLVM IR, spelled as the text that they match, with holes in backquotes.

`` call void @f(ptr `address:local`) `` matches that call, and captures the address. A hole is a kind of `_HOLES` or
literal alternatives (`` `row|col` ``), has a name if it is captured, and is optional if it ends in `?`. `` `all:(` ``
and `` `)` `` enclose what is captured, or optional, as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mlir_offload.toolchain.pattern import compiled, pattern, pattern_of

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
    return pattern_of(lambda: compiled(_translated(template), re.MULTILINE))


def ir_line(template: str) -> re.Pattern[str]:
    """Return what matches a template where a line begins."""
    return pattern_of(lambda: compiled(f"^{_translated(template, is_line=True)}", re.MULTILINE))


def ir_line_bytes(template: str) -> re.Pattern[bytes]:
    """Return what matches a template where a line of bytes begins."""
    return pattern_of(
        lambda: compiled(f"^{_translated(template, is_line=True)}".encode(), re.MULTILINE)
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
