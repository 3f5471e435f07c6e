"""Settings from files and the environment: they become options before those of the command line."""

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
from mlir_offload.driver.option.command_line import is_step, is_subcommand
from mlir_offload.driver.option.row import Setting, Value
from mlir_offload.driver.option.table import (
    FILE_VARIABLE,
    SETTINGS,
    find_project_file,
    find_user_file,
)
from mlir_offload.toolchain.errors import InputOutputError, UsageError

_OFF = "off"
_MOST_BYTES = 1 << 20


class Origin(Struct, frozen=True):
    """The value of a setting and its source. `place` is a file, a variable, the command line or the default."""

    setting: Setting
    value: Value | None
    place: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the options to insert before those of the command line."""
        is_there = self.place in _SAID_ALREADY or self.value is None
        return () if is_there else self.setting.arguments(self.value)  # type: ignore[arg-type]  # not None


_COMMAND_LINE, _DEFAULT = "command line", "default"
_SAID_ALREADY = frozenset({_COMMAND_LINE, _DEFAULT})


class ConfigFile(Struct, frozen=True):
    """A configuration file. A project's file is found in a directory, not named by the user."""

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
        """Return the file without the settings with these keys."""
        values = {key: value for key, value in self.values.items() if key not in keys}
        return replace(self, values=values)


def settle(
    arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[ConfigFile]
) -> tuple[Origin, ...]:
    """Return each setting from the first source that sets it: command line, environment, project, user."""
    # A link has few options, but possibly many files.
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
    """Yield the options of the settings, except variables that their users read from the environment."""
    for origin in origins:
        from_variable = origin.place.startswith("environment")
        if not (from_variable and origin.setting.is_read_elsewhere):
            yield from origin.arguments


def render_config(origins: Sequence[Origin], files: Sequence[ConfigFile]) -> str:
    """Return each setting with its value in TOML, and its source."""
    import json

    lines = [f"# read: {file.path}" for file in files] or ["# no configuration file"]
    for origin in origins:
        key = origin.setting.key
        if origin.value is None:
            lines.append(f"# {key}: {origin.setting.default}  (default)")
        elif origin.place == _COMMAND_LINE:
            lines.append(f"# {key}: {origin.value}  (command line)")
        else:
            # JSON and TOML have the same syntax for these values.
            value = list(origin.value) if isinstance(origin.value, tuple) else origin.value
            lines.append(f"{key} = {json.dumps(value)}  # {origin.place}")
    return "\n".join(lines) + "\n"


def find_files(
    options: Sequence[str], environment: Mapping[str, str], directory: Path
) -> tuple[ConfigFile, ...]:
    """Return the configuration files that apply in a directory, highest priority first.

    `options` are the --config=FILE and --no-config on the command line. Raises UsageError for an invalid
    file, InputOutputError if a named file cannot be read.
    """
    wanted = [option.removeprefix("--config=") for option in options]
    named = wanted[-1] if wanted else environment.get(FILE_VARIABLE, "")
    if named in {"--no-config", _OFF}:
        return ()
    if named:
        first = [load_config(Path(named))]
    else:
        found = project_file(directory)
        first = [replace(load_config(found), is_project=True)] if found is not None else []
    user = find_user_file(environment)
    return (*first, *([load_config(user)] if user is not None else ()))


def project_file(directory: Path) -> Path | None:
    """Return the project's file in the directory or its nearest parent, within the same checkout."""
    path = find_project_file(directory)
    if path is None:
        return None
    if not path.is_file():
        msg = f"{path} is not a regular file"
        raise InputOutputError(msg, hint="remove it, or give --no-config")
    _check_owner(path)
    return path


def _check_owner(path: Path) -> None:
    """Raise UsageError if another user owns the file, who could have put it into a parent directory."""
    if path.stat().st_uid not in {os.geteuid(), 0}:
        msg = f"{path} belongs to another user"
        raise UsageError(msg, hint=f"name it with --config={path} if you trust it, or --no-config")


def load_config(path: Path) -> ConfigFile:
    """Read a configuration file. Raises InputOutputError, and UsageError for an invalid file."""
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
    # In Python, a boolean is an integer.
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
    """Return the file and line of a key, because tomllib does not report lines of keys."""
    found = re.search(rf"^\s*\[?[\"']?{re.escape(key)}\b", text, re.MULTILINE)
    return f"{path}:{text.count(chr(10), 0, found.end()) + 1}" if found else str(path)


_CONFIG, _NO_CONFIG, _PRINT = "--config=", "--no-config", "--print-config"
# Options that are recognized only as the first word, and to which no setting applies.
_ACTIONS = ("--version", "--help", "-h", "--completion=", "--cmake-dir", "--pkg-config-dir")
# `build` passes configuration options on; the compiler and `run` take the options of all settings.
_BUILD = "build"
_COMPILING = frozenset({"", "run"})
# These read untrusted files: a project's configuration file chooses no program for them, even if trusted.
_READING = frozenset(("check", "explain", "extract", "inspect"))


def configured(
    arguments: Sequence[str], environment: Mapping[str, str], directory: Path
) -> tuple[str, ...] | None:
    """Return the arguments with the options from files and variables; None after --print-config.

    Raises UsageError for an invalid file or variable, and for an untrusted project file that chooses programs;
    InputOutputError for a file that cannot be read.
    """
    subcommand = _subcommand(arguments)
    if is_step(subcommand) or (arguments and arguments[0].startswith(_ACTIONS)):
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
    # `build` reads the settings of the project in the directory of its manifest.
    kept = own if subcommand == _BUILD else ()
    return (*((subcommand,) if subcommand else ()), *kept, *added, *rest, *behind)


def check_settings(
    files: Sequence[ConfigFile],
    origins: Sequence[Origin],
    added: Sequence[str],
    environment: Mapping[str, str],
) -> None:
    """Raise UsageError if an untrusted project file chooses a program by one of the added options."""
    for file in files:
        if file.is_project and file.programs():
            chosen = {
                word for one in origins if one.place == str(file.path) for word in one.arguments
            }
            flags = [word for word in added if word in chosen]
            trusted.check_trusted(file.path, file.content, flags, environment)


def _subcommand(arguments: Sequence[str]) -> str:
    """Return the subcommand; for a compiler cache, a step is spelled as an option."""
    first = arguments[0] if arguments else ""
    return first if is_step(first) or is_subcommand(first) else ""


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Return the configuration options, the other arguments before `--`, and the rest."""
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    own = [word for word in arguments[:at] if _is_own(word)]
    rest = [word for word in arguments[:at] if not _is_own(word)]
    return own, rest, tuple(arguments[at:])


def _is_own(word: str) -> bool:
    return word in {_NO_CONFIG, _PRINT} or word.startswith(_CONFIG)


def _taken_by(name: str, added: Sequence[str]) -> tuple[str, ...]:
    """Return the options that a subcommand has; settings apply to all subcommands."""
    described = option_subcommand.SUBCOMMANDS[name]
    return tuple(word for word in added if described.find(word) is not None)
