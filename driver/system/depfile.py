"""Dependency files for Make and Ninja: one rule, in clang's format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from mlir_offload.toolchain.errors import InputOutputError
from mlir_offload.toolchain.pattern import pattern

# clang's limit, so that programs that read its rules accept these.
_MAX_COLUMNS = 75
_NEEDS_BACKSLASH = pattern(r"(\\*)( )|#")
# A word ends at white space without a backslash; a backslash before a newline is white space.
_WORD = pattern(r"(?:\\[ #\\]|\$\$|[^ \t\n\\]|\\(?!\n))+")
_RULE_END = pattern(r"(?<!\\)\n")
_ESCAPED = pattern(r"(\\+)(?= )|\\(?=#)|\$(\$)")


def quote_for_make(name: str) -> str:
    """Return a file name quoted for a rule (`clang/lib/Frontend/DependencyFile.cpp`).

    Raises InputOutputError for a name with a newline, which a rule cannot contain.
    """
    if "\n" in name:
        msg = f"{name!r} cannot be named in a rule for Make: there is a newline in it"
        raise InputOutputError(msg, hint="rename the file")
    return _NEEDS_BACKSLASH.sub(_escape, name).replace("$", "$$")


def _escape(match: re.Match[str]) -> str:
    """Escape a `#`, or a space; backslashes before a space are doubled."""
    return "\\#" if match[0] == "#" else f"{match[1] * 2}\\ "


def _unescape(match: re.Match[str]) -> str:
    """Return half of the backslashes before a space; remove the escape of a `#` or a `$`."""
    return match[2] or "\\" * (len(match[1] or "") // 2)


def render_rule(
    targets: Sequence[str], sources: Sequence[str], others: Iterable[str] = (), *, phony: bool
) -> str:
    """Return one rule: targets unchanged, file names quoted, each once.

    With `phony`, each file of `others` also becomes a target without prerequisites, so that Make
    continues if an included file has been removed.
    """
    files = dict.fromkeys((*sources, *others))
    extra = [name for name in files if name not in set(sources)] if phony else []
    rule = _wrapped([*targets[:-1], f"{targets[-1]}:", *map(quote_for_make, files)])
    return "\n".join((rule, *(f"{quote_for_make(name)}:" for name in extra))) + "\n"


def with_prerequisites(text: str, names: Iterable[str]) -> str:
    """Return a dependency file of clang whose first rule has further prerequisites, each once."""
    known = set(read_prerequisites(text))
    further = [name for name in dict.fromkeys(names) if name not in known]
    rule, *rest = _RULE_END.split(text, maxsplit=1)
    words = (f" \\\n  {quote_for_make(name)}" for name in further)
    return "\n".join(("".join((rule, *words)), *rest))


def _wrapped(words: Sequence[str]) -> str:
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) + 2 > _MAX_COLUMNS:
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return " \\\n".join(lines)


def read_prerequisites(text: str) -> Iterator[str]:
    """Yield the prerequisites of the first rule in a dependency file of clang."""
    rule = _RULE_END.split(text, maxsplit=1)[0]
    words = (match[0] for match in _WORD.finditer(rule))
    for word in words:
        if word.endswith(":"):
            break
    yield from (_ESCAPED.sub(_unescape, word) for word in words)
