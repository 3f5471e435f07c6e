"""The command line of the compiler: options as clang spells them, input files, and outputs."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.message.report import MessageOptions, show_note
from mlir_offload.driver.option import (
    action,
    clang_option,
    nvcc_option,
    pipeline_file,
    row,
    subcommand,
)
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
from mlir_offload.toolchain.errors import InputOutputError, UsageError
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.process import as_operand
from mlir_offload.translate import target_attribute

# `-Wno-` and `-Werror=` belong to this driver only in front of a rule name; otherwise to clang.
_RULE = pattern(r"(-Wno-|-Werror=)([A-Z]{2,4}\d{3})")
_VERBOSE = frozenset(COMPILER.named("-v").names)
_MOST_NAMES = 1000
# Magic bytes of ELF files, libraries and LLVM bitcode.
_LINKED_MAGICS = (b"\x7fELF", b"!<arch>\n", b"!<thin>\n", b"BC\xc0\xde")
_MOST_MAGIC_BYTES = 8
STANDARD_INPUT = STANDARD_OUTPUT = Path("-")
# C++ sources, whose programs need the C++ standard library.
CPP_SUFFIXES = frozenset({".cc", ".cpp", ".cxx", *GPU_CPP})
IR_SUFFIXES = frozenset({".ll", ".bc"})
_KNOWN_SUFFIXES = frozenset(MLIR_SUFFIXES) | frozenset(COMPILED_SUFFIXES)
_OUTPUT_SUFFIX = {
    Mode.LINK: ".o",
    Mode.OBJECT: ".o",
    Mode.ASSEMBLY: ".s",
    Mode.LLVM_TEXT: ".ll",
    Mode.LLVM_BITCODE: ".bc",
    Mode.HEADER: ".h",
    Mode.PREPROCESSED: ".i",
    Mode.RULE: ".d",
    Mode.SYNTAX: "",
    Mode.DEVICE: ".o",
}
__all__ = [
    "COMPILED_SUFFIXES",
    "GPU_CPP",
    "LINKED_SUFFIXES",
    "MLIR_SUFFIXES",
    "CompileOptions",
    "DeviceCode",
    "Mode",
    "as_operand",
    "check_regular",
    "own_words",
    "parse_arguments",
    "read_arguments",
]


def take_message_options(
    arguments: Sequence[str],
) -> tuple[MessageOptions, tuple[str, ...]]:
    """Return the options for diagnostics, and the other arguments. Words after `--` are not options.

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
        if not word.startswith("-"):
            rest.append(word)
            continue
        applied = _applied(options, word, words)
        if applied is None:
            rest.append(word)
            rest += (words.pop(),) if words and _takes_next(word) else ()
        else:
            options = applied
    # The compiler reads these two options as well.
    own = frozenset(own_words(rest))
    is_verbose = not _VERBOSE.isdisjoint(own)
    options = replace(options, verbose=is_verbose, warnings_are_errors="-Werror" in own)
    return options, tuple(rest)


def own_words(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the words that are no values of options before them, and do not follow a `--`.

    The values may be options of another program: `-Xlinker -q`, `-mllvm -print-after-all`.
    """
    words = iter(arguments)
    for word in words:
        if word == "--":
            return
        yield word
        if word.startswith("-") and _takes_next(word):
            next(words, None)


def _takes_next(word: str) -> bool:
    """Return whether the value of an option, a word with a dash, is the next word."""
    is_passed_on = word == "-mllvm" or (word.startswith("-X") and "=" not in word)
    return is_passed_on or COMPILER.takes_next(word)


def _applied(options: MessageOptions, word: str, words: list[str]) -> MessageOptions | None:
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
    """Return the options of a command line.

    Raises UsageError for an unknown option, a missing value, and conflicting options.
    """
    return consistent(read_arguments(arguments))


def read_arguments(arguments: Sequence[str]) -> CompileOptions:
    """Return the options of a command line without checking for conflicts.

    Raises UsageError for an unknown option and a missing value.
    """
    options = _add_words(CompileOptions(), arguments)
    place = options.output.parent if options.output else Path()
    temps = place / TEMPS if options.save_temps == BESIDE_OUTPUT else options.save_temps
    return replace(options, arguments=tuple(arguments), save_temps=temps)


def _add_words(options: CompileOptions, arguments: Sequence[str]) -> CompileOptions:
    """Return the options with further words applied. Raises UsageError like `read_arguments`."""
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
    if action.is_ambiguous(argument) or COMPILER.find(argument) is None:
        return _other_option(options, argument, rest)
    row, name, value = read_option(COMPILER, argument, rest)
    if row.does is None:
        raise unknown_option(COMPILER, argument)
    changed: CompileOptions = row.does(options, value)
    if changed.taken_for:
        return _taken_for(changed)
    return replace(changed, spelled=(*changed.spelled, (name, value)))


def option_words(argument: str, rest: list[str]) -> tuple[str, ...]:
    """Return an option with its value, which is taken from `rest` if it is the next word.

    Raises UsageError for an unknown option and a missing value.
    """
    behind = tuple(reversed(rest))
    _option(CompileOptions(), argument, rest)
    return (argument, *behind[: len(behind) - len(rest)])


def _other_option(options: CompileOptions, argument: str, rest: list[str]) -> CompileOptions:
    """Apply an option of clang or nvcc without a row. Most command lines have none and skip loading their tables."""
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
    """Return the options with the replacement of the last option applied."""
    return _add_words(replace(options, taken_for=()), options.taken_for)


def _input(options: CompileOptions, name: str) -> CompileOptions:
    if not name:
        msg = "an argument is empty, where a file is expected"
        raise UsageError(msg, hint="leave it out; a variable of the shell may be empty")
    path = path_named(name)
    # An input is found again by its path, `a.o` for `./a.o`. The linker notes the spelling of a shared library.
    spelled = name if ".so" in path.suffixes else str(path)
    languages = (
        (*options.languages, (path, options.language)) if options.language else options.languages
    )
    return replace(
        options,
        inputs=(*options.inputs, path),
        languages=languages,
        link_items=(*options.link_items, as_operand(spelled)),
    )


@cache
def path_named(name: str) -> Path:
    """Return the path of a word, the same object each time: it computes its text and its hash once."""
    return Path(name)


def check_input(path: Path) -> None:
    """Raise InputOutputError or UsageError for a file that is not a valid compiler input."""
    check_regular(path)
    if path.suffix not in _KNOWN_SUFFIXES and not _is_linked(path):
        msg = f"{path}: unknown kind of file"
        endings = ".mlir, .o, .a, .so, .c, .cpp, .cu, .hip, .ll or .bc"
        hint = f"inputs end in {endings}; -x mlir before a file reads it as MLIR"
        raise UsageError(msg, hint=hint)


def check_regular(path: Path) -> None:
    """Raise InputOutputError for a path that is not a regular file."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 (faster, for each input)
    except (FileNotFoundError, NotADirectoryError):
        reason, hint = "no such file", _missing_hint(path)
    except OSError as error:
        reason, hint = error.strerror or str(error), "check the name and its permissions"
    else:
        if stat.S_ISREG(mode):
            return
        # The compiler reads an input more than once, and a device has no end.
        reason, hint = "not a regular file", "write what it gives to a file first"
        if stat.S_ISDIR(mode):
            reason, hint = "is a directory", "name the files in it"
    msg = f"{path}: {reason}"
    raise InputOutputError(msg, hint=hint)


def _missing_hint(path: Path) -> str:
    """Return a suggestion for a missing file: a subcommand, or a similar name."""
    if path.is_symlink():
        return f"it is a link to '{path.readlink()}'"
    near = "" if path.suffix else row.nearest(str(path), subcommand.SUBCOMMANDS)
    if near:
        return f"did you mean the subcommand '{near}'?"
    similar = row.nearest(path.name, _names_beside(path))
    if similar:
        return f"did you mean '{path.with_name(similar)}'?"
    if not path.suffix:
        return "check the name; a value is attached to its option, as in -Ofast or -g2"
    return "check the name and the current directory"


def _names_beside(path: Path) -> Iterator[str]:
    """Yield sources in the directory of a missing file, up to a limit."""
    known = MLIR_SUFFIXES | COMPILED_SUFFIXES
    with contextlib.suppress(OSError), os.scandir(path.parent) as found:
        for entry in itertools.islice(found, _MOST_NAMES):
            if Path(entry.name).suffix in known:
                yield entry.name


def has_device_code(options: CompileOptions) -> bool:
    """Return whether a source may contain device code: MLIR, CUDA C++ or HIP C++."""
    with_kernels = MLIR_SUFFIXES | GPU_CPP.keys()
    return any(path.suffix in with_kernels for path in sources(options))


def attached_archs(options: CompileOptions) -> tuple[str, ...]:
    """Return the GPUs of target attributes in textual programs, for use without --offload-arch=."""
    archs: dict[str, None] = {}
    for path in sources(options):
        if path.suffix in MLIR_SUFFIXES:
            archs |= dict.fromkeys(target_attribute.chips_in_source(path.read_bytes()))
    if archs:
        show_note(f"compiling for the attached targets: --offload-arch={','.join(archs)}")
    return tuple(archs)


def sources(options: CompileOptions) -> tuple[Path, ...]:
    """Return the inputs that are compiled; the others are linked unchanged."""
    return _compiled(options.inputs)


@cache
def _compiled(inputs: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(path for path in inputs if not _is_linked(path))


def all_outputs(options: CompileOptions) -> tuple[Path, ...]:
    """Return all outputs, including the C header of an object or program."""
    outputs = final_outputs(options)
    header = () if options.header is None else (options.header,)
    return outputs if options.mode is Mode.HEADER else (*outputs, *header)


def final_outputs(options: CompileOptions) -> tuple[Path, ...]:
    """Return the outputs of the last stage: one in a link, otherwise one per source.

    Files of device code are not included, because their names are known only after compilation.
    """
    mode = options.mode
    if mode is Mode.HEADER and options.header is not None:
        return (options.header,)
    if mode is Mode.LINK:
        return (options.output or Path("a.out"),)
    if mode in {Mode.SYNTAX, Mode.DEVICE}:
        return ()
    named = options.output
    if mode is Mode.RULE and options.depfile.file:
        named = Path(options.depfile.file)
    if named is not None:
        return (named,)
    is_printed = mode in {Mode.PREPROCESSED, Mode.RULE}
    suffix = _OUTPUT_SUFFIX[mode]
    return tuple(
        STANDARD_OUTPUT if is_printed else Path(path.stem + suffix) for path in sources(options)
    )


def read_besides(options: CompileOptions) -> tuple[Path, ...]:
    """Return the files that options name and each `.mlir` input reads: libraries, pipeline, plugins."""
    plugins = (Path(word.partition("=")[2]) for word in options.mlir_arguments)
    libraries = (library.path for library in options.device_flags.libraries)
    files = pipeline_file.pipeline_paths(options.pipeline) if options.pipeline else ()
    return (*libraries, *files, *plugins)


def compiled_files(options: CompileOptions, workspace: Path) -> dict[Path, Path]:
    """Return the output path of each source, in a separate directory of the workspace."""
    suffix = _OUTPUT_SUFFIX[options.mode]
    return {
        path: workspace / str(number) / f"{_plain(path.stem)}{suffix}"
        for number, path in enumerate(sources(options))
    }


def _is_linked(path: Path) -> bool:
    """Return whether a file is an input of the linker; a library may have a version, as in libx.so.1.

    A file with another extension is detected by its content, because clang passes such files to the linker.
    """
    if path.suffix in LINKED_SUFFIXES or ".so." in path.name:
        return True
    if path.suffix in _KNOWN_SUFFIXES or not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(_MOST_MAGIC_BYTES).startswith(_LINKED_MAGICS)


def _plain(stem: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in stem)


def subcommand_first(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments with the subcommand moved before the options that precede it."""
    rest = list(reversed(arguments))
    while rest:
        word = rest.pop()
        if word == "--" or not word.startswith("-"):
            at = len(arguments) - len(rest) - 1
            found = (word,) if is_subcommand(word) else ()
            return (*found, *arguments[:at], *arguments[at + len(found) :])
        if _takes_next(word) and rest:
            rest.pop()
    return arguments


def is_subcommand(word: str) -> bool:
    """Return whether a word names a subcommand. Only alphabetic words load the table."""
    return word.isalpha() and word in subcommand.SUBCOMMANDS


def is_step(word: str) -> bool:
    """Return whether a word names a step: `step`, or an option if a compiler cache runs it."""
    return word == "step" or (word.startswith("--") and word.endswith("-step"))
