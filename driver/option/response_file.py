"""Response files: `@FILE` arguments, and passing long command lines through one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.toolchain.errors import InputOutputError, UsageError
from mlir_offload.toolchain.process import Command

_FILE = re.compile(r"(-Wl,)?@(.+)", re.DOTALL)
# GCC's limit; it also stops files that include others twice from growing exponentially.
_MAX_FILES = 2000
_MAX_BYTES = 1 << 26
_TOKEN = re.compile(
    r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*(?:"|\\?\Z)|'(?:[^'\\]|\\.)*(?:'|\\?\Z)|\\\Z)+""",
    re.DOTALL,
)
_PIECE = re.compile(
    r"""\\(.)|"((?:[^"\\]|\\.)*)"?|'((?:[^'\\]|\\.)*)'?|([^"'\\]+|\\\Z)""", re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# Linux limits one argument to 32 pages, and the sum of all arguments and the environment.
_MAX_ARGUMENT_BYTES = 32 * 4096 - 1


def expand_arguments(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Return the arguments with each `@FILE` before `--` replaced by its content; and the files.

    The words of `-Wl,@FILE` are for the linker. As in clang, names in a file are relative to the current
    directory. Raises InputOutputError for an unreadable file, UsageError for one that includes itself.
    """
    expanded: list[str] = []
    open_files: dict[str, Iterator[str]] = {"": iter(arguments)}
    read: list[Path] = []
    while open_files:
        words = open_files[next(reversed(open_files))]
        word = next(words, None)
        if word is None:
            open_files.popitem()
        elif word == "--" and len(open_files) == 1:
            expanded += (word, *words)
        elif (found := _FILE.match(word)) is not None:
            prefix, name = found.groups()
            read.append(Path(name))
            place = os.path.realpath(name)
            _check_nesting(f"@{name}", is_open=place in open_files, read=len(read))
            inside = split_words(_read(name))
            open_files[place] = chain(*map(_for_linker, inside)) if prefix else iter(inside)
        else:
            expanded.append(word)
    return tuple(expanded), tuple(read)


def _for_linker(word: str) -> tuple[str, ...]:
    return ("-Xlinker", word) if "," in word else (f"-Wl,{word}",)


def _check_nesting(word: str, *, is_open: bool, read: int) -> None:
    if is_open or read > _MAX_FILES:
        problem = "names itself" if is_open else f"is one of more than {_MAX_FILES}"
        msg = f"{word}: this response file {problem}"
        raise UsageError(msg, hint="take the @ out of it; a file name may be spelled ./@NAME")


def _read(name: str) -> str:
    """Return the text of a response file: UTF-16 if it has a byte order mark, otherwise bytes as in argv."""
    try:
        with Path(name).open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        msg = f"@{name}: cannot read this response file: {error.strerror}"
        hint = f"check the name; for an input whose name begins with '@' write ./@{name}"
        raise InputOutputError(msg, hint=hint) from error
    if len(content) > _MAX_BYTES:
        msg = f"@{name}: a response file of more than {_MAX_BYTES} bytes"
        raise InputOutputError(msg, hint="is it the right file?")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", "replace")
    else:
        text = os.fsdecode(content.removeprefix(b"\xef\xbb\xbf"))
    if "\0" in text:
        msg = f"@{name}: no response file: character {text.index(chr(0))} is a NUL"
        raise InputOutputError(msg, hint="is it the right file?")
    return text


def split_words(text: str) -> list[str]:
    """Return the arguments in a response file, with the quoting of GCC and clang.

    A backslash escapes any character, also inside single and double quotes. A backslash at the end of the file
    is literal.
    """
    return ["".join(map(_unquoted, _PIECE.finditer(token[0]))) for token in _TOKEN.finditer(text)]


def _unquoted(piece: re.Match[str]) -> str:
    escaped, double, single, plain = piece.groups()
    quoted = double if double is not None else single
    if quoted is not None:
        return _ESCAPED.sub(r"\1", quoted)
    return escaped or plain or ""


def quote_word(argument: str) -> str:
    """Return an argument quoted for a response file."""
    return '"' + re.sub(r'(["\\])', r"\\\1", argument) + '"'


def fit(command: Command, place: Path) -> Command:
    """Return the command, with its arguments in a response file `place` if they are too long for exec."""
    if not _is_too_long(command):
        return command
    text = "\n".join(map(quote_word, command.argv[1:]))
    place.write_bytes(os.fsencode(text))
    return replace(command, argv=(command.argv[0], f"@{place}"))


def _is_too_long(command: Command) -> bool:
    """Return whether the arguments take more than half of the limit for arguments and environment."""
    sizes = [len(os.fsencode(argument)) + 1 for argument in command.argv]
    limit = os.sysconf("SC_ARG_MAX") // 2
    # The kernel also counts a pointer for each argument.
    return max(sizes) > _MAX_ARGUMENT_BYTES or sum(sizes) + 8 * len(sizes) > limit
