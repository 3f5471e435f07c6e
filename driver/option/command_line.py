"""The command line of the compiler: options as clang spells them, parsed into one value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.message.options import MessageOptions
from mlir_offload.driver.option import clang_option, nvcc, nvcc_option
from mlir_offload.driver.option.action import BESIDE_OUTPUT, TEMPS
from mlir_offload.driver.option.checks import consistent
from mlir_offload.driver.option.compile_options import (
    COMPILED_SUFFIXES,
    GPU_CPP,
    LINKED_SUFFIXES,
    MLIR_SUFFIXES,
    CompileOptions,
    DeviceCode,
    Mode,
)
from mlir_offload.driver.option.row import read_option, unknown_option
from mlir_offload.driver.option.table import COMPILER
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.process import as_operand

# What follows is a rule here only if it is spelled as one is; else it is an option of clang.
_RULE = pattern(r"(-Wno-|-Werror=)([A-Z]{2,4}\d{3})")
_VERBOSE = frozenset(COMPILER.named("-v").names)
__all__ = [
    "COMPILED_SUFFIXES",
    "GPU_CPP",
    "LINKED_SUFFIXES",
    "MLIR_SUFFIXES",
    "CompileOptions",
    "DeviceCode",
    "Mode",
    "as_operand",
    "parse_arguments",
    "read_arguments",
]


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


def parse_arguments(arguments: Sequence[str]) -> CompileOptions:
    """Return what the arguments ask for.

    Raises UsageError for an unknown option, a missing value, and options that exclude each other.
    """
    return consistent(read_arguments(arguments))


def read_arguments(arguments: Sequence[str]) -> CompileOptions:
    """Return what the arguments say, whether or not it makes sense together.

    Raises UsageError for an unknown option and a missing value.
    """
    options = _add_words(CompileOptions(), arguments)
    place = options.output.parent if options.output else Path()
    temps = place / TEMPS if options.save_temps == BESIDE_OUTPUT else options.save_temps
    return replace(options, arguments=tuple(arguments), save_temps=temps)


def _add_words(options: CompileOptions, arguments: Sequence[str]) -> CompileOptions:
    """Return the options with what further words say. Raises UsageError as above."""
    rest = list(reversed(arguments))
    only_inputs = False
    while rest:
        argument = rest.pop()
        if argument == "--" and not only_inputs:
            only_inputs = True
        elif only_inputs or not argument.startswith("-") or argument == "-":
            options = _input(options, argument)
        else:
            options = _option(options, argument, rest)
    return options


def _option(options: CompileOptions, argument: str, rest: list[str]) -> CompileOptions:
    if nvcc.is_ambiguous(argument) or COMPILER.find(argument) is None:
        return _other_option(options, argument, rest)
    row, name, value = read_option(COMPILER, argument, rest)
    if row.does is None:
        raise unknown_option(COMPILER, argument)
    changed: CompileOptions = row.does(options, value)
    if changed.taken_for:
        return _taken_for(changed)
    return replace(changed, spelled=(*changed.spelled, (name, value)))


def option_words(argument: str, rest: list[str]) -> tuple[str, ...]:
    """Return an option with its value, taken from the rest if it is the next word.

    Raises UsageError for an unknown option and a missing value.
    """
    behind = tuple(reversed(rest))
    _option(CompileOptions(), argument, rest)
    return (argument, *behind[: len(behind) - len(rest)])


def _other_option(options: CompileOptions, argument: str, rest: list[str]) -> CompileOptions:
    """Take an option of clang or nvcc that has no row: most command lines have none, and load no table for it."""
    if short := clang_option.short_spelling(argument, rest):
        return _add_words(options, short)
    taken = nvcc_option.take(options, argument, rest)
    if taken is not None:
        return _taken_for(taken)
    taken = clang_option.take(options, argument, rest)
    if taken is None:
        raise unknown_option(COMPILER, argument)
    return taken


def _taken_for(options: CompileOptions) -> CompileOptions:
    """Return the options with the words that the last option represents."""
    return _add_words(replace(options, taken_for=()), options.taken_for)


def _input(options: CompileOptions, name: str) -> CompileOptions:
    path = Path(name)
    languages = (
        (*options.languages, (path, options.language)) if options.language else options.languages
    )
    return replace(
        options,
        inputs=(*options.inputs, path),
        languages=languages,
        link_items=(*options.link_items, as_operand(name)),
    )
