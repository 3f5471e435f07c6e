"""The command line with what files and the environment add to it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlir_offload.driver.option import trusted
from mlir_offload.driver.option.config import (
    ConfigFile,
    Origin,
    find_files,
    origin_arguments,
    render_config,
    settle,
)
from mlir_offload.driver.option.subcommand import SUBCOMMANDS
from mlir_offload.driver.option.table import COMPILER

_CONFIG, _NO_CONFIG, _PRINT = "--config=", "--no-config", "--print-config"
# Words that say something at the beginning only, and to which no setting means anything.
_ACTIONS = ("--version", "--help", "-h", "--completion=", "--cmake-dir", "--pkg-config-dir")
# What the compiler itself takes, and the verb that compiles.
_BUILD = "build"
_COMPILING = frozenset({"", "run"})
_STEP = "step"
# These read files of anyone: no file that lies about chooses a program for them, trusted or not.
_READING = frozenset(("check", "explain", "extract", "inspect"))


def configured(
    arguments: Sequence[str], environment: Mapping[str, str], directory: Path
) -> tuple[str, ...] | None:
    """Return the arguments with those that nobody gave but a file or a variable; None: all is said.

    Raises UsageError for a file or variable that is wrong, or a project's file that chooses programs
    and is not trusted, InputOutputError for one out of reach.
    """
    verb = _verb(arguments)
    if verb.endswith("step") or (arguments and arguments[0].startswith(_ACTIONS)):
        return tuple(arguments)
    if list(arguments[:1]) == ["help"]:
        return tuple(arguments)
    own, rest, behind = _split(arguments[1:] if verb else arguments)
    files = find_files([word for word in own if word != _PRINT], environment, directory)
    if verb in _READING:
        files = tuple(file.without(file.programs()) if file.is_project else file for file in files)
    origins = settle(rest, environment, files)
    if _PRINT in own:
        sys.stdout.write(render_config(origins, files))
        return None
    taken = origins if verb == _BUILD else [one for one in origins if not one.setting.is_of_build]
    added = tuple(origin_arguments(taken))
    if added and verb not in _COMPILING:
        added = _taken_by(verb, added)
    check_settings(files, origins, added, environment)
    # A project has settings of its own, in the directory of its manifest.
    kept = own if verb == _BUILD else ()
    return (*((verb,) if verb else ()), *kept, *added, *rest, *behind)


def check_settings(
    files: Sequence[ConfigFile],
    origins: Sequence[Origin],
    added: Sequence[str],
    environment: Mapping[str, str],
) -> None:
    """Raise UsageError if a project's file chooses a program by a flag that is added, and is not trusted."""
    for file in files:
        if file.is_project and file.programs():
            chosen = {
                word for one in origins if one.place == str(file.path) for word in one.arguments
            }
            flags = [word for word in added if word in chosen]
            trusted.check_trusted(file.path, file.content, flags, environment)


def joined_config(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments with `--config FILE` as one word, up to a `--`."""
    bare = _CONFIG.rstrip("=")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if bare not in arguments[: end - 1]:
        return arguments
    at = arguments.index(bare)
    return joined_config((*arguments[:at], _CONFIG + arguments[at + 1], *arguments[at + 2 :]))


def subcommand_first(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments with the subcommand in front of the options that precede it."""
    rest = list(reversed(arguments))
    while rest:
        word = rest.pop()
        if word == "--" or not word.startswith("-"):
            at = len(arguments) - len(rest) - 1
            found = (word,) if word in SUBCOMMANDS else ()
            return (*found, *arguments[:at], *arguments[at + len(found) :])
        if COMPILER.takes_next(word) and rest:
            rest.pop()
    return arguments


def _verb(arguments: Sequence[str]) -> str:
    """Return the verb; a step has the form of an option where a compiler cache is to run it."""
    first = arguments[0] if arguments else ""
    if first.endswith("-step") and first.startswith("--"):
        return first
    return first if first in SUBCOMMANDS or first == _STEP else ""


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Return the options of configuration, the others, and what begins with `--`."""
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    own = [word for word in arguments[:at] if _is_own(word)]
    rest = [word for word in arguments[:at] if not _is_own(word)]
    return own, rest, tuple(arguments[at:])


def _is_own(word: str) -> bool:
    return word in {_NO_CONFIG, _PRINT} or word.startswith(_CONFIG)


def _taken_by(verb: str, added: Sequence[str]) -> tuple[str, ...]:
    """Return the options that a verb knows: a file speaks to all of them."""
    described = SUBCOMMANDS[verb]
    return tuple(word for word in added if described.find(word) is not None)
