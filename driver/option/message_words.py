"""The options of messages, which every subcommand takes: they are read before the others."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mlir_offload.driver.message.options import MessageOptions
from mlir_offload.driver.option.table import COMPILER
from mlir_offload.toolchain.pattern import pattern

# What follows is a rule here only if it is spelled as one is; else it is an option of clang.
_RULE = pattern(r"(-Wno-|-Werror=)([A-Z]{2,4}\d{3})")
_VERBOSE = frozenset(COMPILER.named("-v").names)


def take_message_options(
    arguments: Sequence[str],
) -> tuple[MessageOptions, tuple[str, ...]]:
    """Return how to speak, and the other arguments. What follows `--` is nobody's option.

    Raises UsageError for an unknown value.
    """
    options = MessageOptions()
    rest: list[str] = []
    words = list(reversed(arguments))
    while words:
        word = words.pop()
        if word == "--":
            rest += (word, *reversed(words))
            break
        applied = _applied(options, word, words)
        if applied is None:
            rest.append(word)
        else:
            options = applied
    # These are the compiler's too.
    is_verbose = not _VERBOSE.isdisjoint(rest)
    options = replace(options, verbose=is_verbose, warnings_are_errors="-Werror" in rest)
    return options, tuple(rest)


def _applied(options: MessageOptions, word: str, words: list[str]) -> MessageOptions | None:
    if not word.startswith("-"):
        return None
    rule = _RULE.fullmatch(word)
    found = COMPILER.find(rule[1] if rule else word)
    if found is None:
        return None
    row, name = found
    if row.says is None or (name in {"-Wno-", "-Werror="} and rule is None):
        return None
    value = words.pop() if COMPILER.takes_next(word) and words else word.removeprefix(name)
    changed: MessageOptions = row.says(options, value)
    return changed
