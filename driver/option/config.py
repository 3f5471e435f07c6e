"""Settings from files and the environment: they become options in front of those of the command line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.option import subcommand as option_subcommand
from mlir_offload.driver.option import trusted
from mlir_offload.driver.option.row import Setting, Value
from mlir_offload.driver.option.table import COMPILER, SETTINGS
from mlir_offload.toolchain.errors import InputOutputError, UsageError

PROJECT_FILE = "mlir-offload.toml"
_FILE_VARIABLE = "MLIR_OFFLOAD_CONFIG"
_OFF = "off"
_MOST_BYTES = 1 << 20


class Origin(Struct, frozen=True):
    """A value, and where it comes from; an empty place: nobody set it."""

    setting: Setting
    value: Value | None
    place: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the options to put in front of those of the command line."""
        is_there = self.place in _SAID_ALREADY or self.value is None
        return () if is_there else self.setting.arguments(self.value)  # type: ignore[arg-type]  # not None


_COMMAND_LINE, _DEFAULT = "command line", "default"
_SAID_ALREADY = frozenset({_COMMAND_LINE, _DEFAULT})


class ConfigFile(Struct, frozen=True):
    """A file of settings; that of a project was found, not named by the user."""

    path: Path
    values: Mapping[str, Value]
    content: bytes = b""
    is_project: bool = False

    def programs(self) -> tuple[str, ...]:
        """Return the keys whose values name programs."""
        known = {setting.key: setting for setting in SETTINGS}
        return tuple(
            key
            for key, value in self.values.items()
            if trusted.program_flags(known[key].arguments(value))
        )

    def without(self, keys: Collection[str]) -> ConfigFile:
        """Return the file without some of its settings."""
        values = {key: value for key, value in self.values.items() if key not in keys}
        return replace(self, values=values)


def settle(
    arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[ConfigFile]
) -> tuple[Origin, ...]:
    """Return each setting and who decides: command line, environment, project's file, user's file."""
    # A link has few options, and perhaps many files.
    words = [word for word in arguments if word.startswith("-")]
    return tuple(_origin(setting, words, environment, files) for setting in SETTINGS)


def _origin(
    setting: Setting,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    files: Sequence[ConfigFile],
) -> Origin:
    given = [word for word in arguments if setting.is_given_by(word)]
    if given:
        return Origin(setting, " ".join(given), _COMMAND_LINE)
    for name in setting.variables:
        if environment.get(name):
            value = _from_text(setting, environment[name], name)
            return Origin(setting, value, f"environment: {name}")
    for file in files:
        if setting.key in file.values:
            return Origin(setting, file.values[setting.key], str(file.path))
    return Origin(setting, None, _DEFAULT)


def _from_text(setting: Setting, text: str, name: str) -> Value:
    if setting.kind is int:
        if not text.isdecimal():
            msg = f"{name}={text}: not a number"
            raise UsageError(msg, hint=f"set it to a number, or unset {name}")
        return int(text)
    return tuple(text.split(",")) if setting.kind is tuple else text


def origin_arguments(origins: Sequence[Origin]) -> Iterator[str]:
    """Yield the options that the origins stand for; what reads its variable itself needs none."""
    for origin in origins:
        from_variable = origin.place.startswith("environment")
        if not (from_variable and origin.setting.is_read_elsewhere):
            yield from origin.arguments


def render_config(origins: Sequence[Origin], files: Sequence[ConfigFile]) -> str:
    """Return each setting with its value as a file would have it, and where it comes from."""
    import json

    lines = [f"# read: {file.path}" for file in files] or ["# no configuration file"]
    for origin in origins:
        key = origin.setting.key
        if origin.value is None:
            lines.append(f"# {key}: {origin.setting.default}  (default)")
        elif origin.place == _COMMAND_LINE:
            lines.append(f"# {key}: {origin.value}  (command line)")
        else:
            # JSON spells these values as TOML does.
            value = list(origin.value) if isinstance(origin.value, tuple) else origin.value
            lines.append(f"{key} = {json.dumps(value)}  # {origin.place}")
    return "\n".join(lines) + "\n"


def find_files(
    options: Sequence[str], environment: Mapping[str, str], directory: Path
) -> tuple[ConfigFile, ...]:
    """Return the files that hold here, the one that decides first.

    `options` are --config=FILE and --no-config as they were given. Raises UsageError for what a file
    must not hold, InputOutputError for one that was named and cannot be read.
    """
    wanted = [option.removeprefix("--config=") for option in options]
    named = wanted[-1] if wanted else environment.get(_FILE_VARIABLE, "")
    if named in {"--no-config", _OFF}:
        return ()
    if named:
        first = [load_config(Path(named))]
    else:
        found = project_file(directory)
        first = [replace(load_config(found), is_project=True)] if found is not None else []
    user = _user_file(environment)
    # A home that cannot be searched, as that of another user, has no settings for this one.
    has_own = user is not None and os.path.isfile(user)  # noqa: PTH113
    return (*first, *([load_config(user)] if user is not None and has_own else ()))


def project_file(directory: Path) -> Path | None:
    """Return the file in the directory or the nearest above it, in the same checkout."""
    for folder in (directory, *directory.parents):
        path = folder / PROJECT_FILE
        if path.is_file():
            _check_owner(path)
            return path
        if os.path.lexists(path):
            msg = f"{path} is not a regular file"
            raise InputOutputError(msg, hint="remove it, or give --no-config")
        if (folder / ".git").exists():
            return None
    return None


def _check_owner(path: Path) -> None:
    """Refuse a file that another user laid above this directory."""
    if path.stat().st_uid not in {os.geteuid(), 0}:
        msg = f"{path} belongs to another user"
        raise UsageError(msg, hint=f"name it with --config={path} if you trust it, or --no-config")


def _user_file(environment: Mapping[str, str]) -> Path | None:
    root = environment.get("XDG_CONFIG_HOME", "")
    if not root.startswith("/"):
        home = environment.get("HOME", "")
        root = f"{home}/.config" if home.startswith("/") else ""
    return Path(root, "mlir-offload", "config.toml") if root else None


def load_config(path: Path) -> ConfigFile:
    """Read a file of settings. Raises InputOutputError, UsageError for what it must not hold."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise InputOutputError(msg, hint="check the name, or use --no-config") from error
    if len(content) > _MOST_BYTES:
        msg = f"{path}: a configuration file of more than {_MOST_BYTES} bytes"
        raise InputOutputError(msg, hint="is it the right file?")
    import tomllib

    try:
        text = content.decode()
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        at = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
        location = f"{path}:{at[1]}:{at[2]}" if at else str(path)
        msg = f"invalid TOML: {str(error)[: at.start() if at else None]}"
        hint = 'write one setting per line, as in: llvm = "22"'
        raise UsageError(msg, hint=hint, location=location) from error
    known = {setting.key: setting for setting in SETTINGS}
    values = {key: _checked(known, key, value, path, text) for key, value in table.items()}
    return ConfigFile(path, values, content)


def _checked(known: Mapping[str, Setting], key: str, value: object, path: Path, text: str) -> Value:
    """Return the value of a key. Raises UsageError for an unknown key or a value of another type."""
    location = _location(path, text, key)
    setting = known.get(key)
    if setting is None:
        import difflib

        near = difflib.get_close_matches(key, known, n=1)
        msg = f"unknown setting '{key}'"
        hint = f"did you mean '{near[0]}'?" if near else f"use one of {', '.join(known)}"
        raise UsageError(msg, hint=hint, location=location)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = tuple(value)
    if setting.kind is tuple and isinstance(value, str):
        value = (value,)
    if setting.choices and str(value) not in setting.choices:
        msg = f"'{key}' is not one of {', '.join(setting.choices)}"
        first = setting.choices[0]
        example = first if setting.kind is int else f'"{first}"'
        raise UsageError(msg, hint=f"write {key} = {example}", location=location)
    # A boolean is an integer to Python.
    if type(value) is not setting.kind:
        words, example = {
            str: ("a string", '"text"'),
            int: ("a number", "4"),
            bool: ("true or false", "true"),
            tuple: ("a list of strings", '["text"]'),
        }[setting.kind]
        msg = f"'{key}' is not {words}"
        raise UsageError(msg, hint=f"write {key} = {example}", location=location)
    if setting.is_path and isinstance(value, str) and "/" in value:
        return str(path.parent / value)
    return value


def _location(path: Path, text: str, key: str) -> str:
    """Return the line of a key, which the reader of TOML does not tell."""
    found = re.search(rf"^\s*\[?[\"']?{re.escape(key)}\b", text, re.MULTILINE)
    return f"{path}:{text.count(chr(10), 0, found.end()) + 1}" if found else str(path)


_CONFIG, _NO_CONFIG, _PRINT = "--config=", "--no-config", "--print-config"
# Words that say something at the beginning only, and to which no setting means anything.
_ACTIONS = ("--version", "--help", "-h", "--completion=", "--cmake-dir", "--pkg-config-dir")
# What the compiler itself takes, and the subcommand that compiles.
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
    subcommand = _subcommand(arguments)
    if subcommand.endswith("step") or (arguments and arguments[0].startswith(_ACTIONS)):
        return tuple(arguments)
    if list(arguments[:1]) == ["help"]:
        return tuple(arguments)
    own, rest, behind = _split(arguments[1:] if subcommand else arguments)
    files = find_files([word for word in own if word != _PRINT], environment, directory)
    if subcommand in _READING:
        files = tuple(file.without(file.programs()) if file.is_project else file for file in files)
    origins = settle(rest, environment, files)
    if _PRINT in own:
        sys.stdout.write(render_config(origins, files))
        return None
    taken = (
        origins if subcommand == _BUILD else [one for one in origins if not one.setting.is_of_build]
    )
    added = tuple(origin_arguments(taken))
    if added and subcommand not in _COMPILING:
        added = _taken_by(subcommand, added)
    check_settings(files, origins, added, environment)
    # A project has settings of its own, in the directory of its manifest.
    kept = own if subcommand == _BUILD else ()
    return (*((subcommand,) if subcommand else ()), *kept, *added, *rest, *behind)


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
            found = (word,) if is_subcommand(word) else ()
            return (*found, *arguments[:at], *arguments[at + len(found) :])
        if COMPILER.takes_next(word) and rest:
            rest.pop()
    return arguments


def _subcommand(arguments: Sequence[str]) -> str:
    """Return the subcommand; a step has the form of an option where a compiler cache is to run it."""
    first = arguments[0] if arguments else ""
    if first.endswith("-step") and first.startswith("--"):
        return first
    return first if is_subcommand(first) or first == _STEP else ""


def is_subcommand(word: str) -> bool:
    """Say whether a word is the name of a subcommand: letters alone. Options and files load no table for this."""
    return word.isalpha() and word in option_subcommand.SUBCOMMANDS


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Return the options of configuration, the others, and what begins with `--`."""
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    own = [word for word in arguments[:at] if _is_own(word)]
    rest = [word for word in arguments[:at] if not _is_own(word)]
    return own, rest, tuple(arguments[at:])


def _is_own(word: str) -> bool:
    return word in {_NO_CONFIG, _PRINT} or word.startswith(_CONFIG)


def _taken_by(name: str, added: Sequence[str]) -> tuple[str, ...]:
    """Return the options that a subcommand knows: a file speaks to all of them."""
    described = option_subcommand.SUBCOMMANDS[name]
    return tuple(word for word in added if described.find(word) is not None)
