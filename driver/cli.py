"""The command line: dispatch to subcommands, or to the compiler if the first word is not one."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from mlir_offload import toolchain
from mlir_offload.driver import reproduce
from mlir_offload.driver.build import subcommand as build_subcommand
from mlir_offload.driver.message.report import MessageOptions, report, show, show_error
from mlir_offload.driver.option import completion, config, response_file, row
from mlir_offload.driver.option import help as option_help
from mlir_offload.driver.option import subcommand as option_subcommand
from mlir_offload.driver.option.checks import check_message_outputs, configuration_files
from mlir_offload.driver.option.command_line import (
    is_step,
    is_subcommand,
    own_words,
    read_arguments,
    subcommand_first,
    take_message_options,
)
from mlir_offload.driver.option.table import COMPILER, are_set
from mlir_offload.driver.step import parse
from mlir_offload.driver.system.parallel import interruptible
from mlir_offload.driver.system.workspace import remove_directories_left
from mlir_offload.driver.tools import cache_key, choose, releases, toolchain_id, version
from mlir_offload.toolchain import limit
from mlir_offload.toolchain.errors import InputOutputError, MlirOffloadError, UsageError
from mlir_offload.toolchain.fork_server import ForkServers
from mlir_offload.toolchain.pattern import keep_patterns
from mlir_offload.toolchain.process import ProcessRunner
from mlir_offload.translate import tool_message

_INTERRUPTED = 130
_HELP = frozenset({"--help", "-help", "-h"})
_VERSION = "--version"
_VERBOSE = frozenset({"-v", "--verbose"})
_COMPLETION = "--completion="
_CONFIG = "--config="
_CONFIGURING = (_CONFIG, "--no-config", "--print-config")


def main(arguments: Sequence[str] | None = None, fork_servers: ForkServers | None = None) -> None:
    """Run the command line and exit with the status of the error class, 0 on success.

    With `fork_servers` of another process, the tools that it has loaded are not loaded again.
    """
    # The process is short-lived; garbage collection would take 3 % of a small build.
    gc.disable()
    _open_standard_streams()
    # If the parent ignores SIGCHLD, exit statuses of children are lost. GCC's driver resets it, too.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    words = tuple(sys.argv[1:] if arguments is None else arguments)
    _leave(_guarded(words, fork_servers))


def _open_standard_streams() -> None:
    """Open /dev/null as each closed standard stream, before one of our files gets its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _leave(status: int) -> NoReturn:
    """End the process without destroying Python objects, which would take 13 ms per invocation."""
    keep_patterns()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        # Python reports errors of closed or full streams.
        sys.exit(status)
    os._exit(status)


def _guarded(arguments: tuple[str, ...], fork_servers: ForkServers | None = None) -> int:
    """Return the exit status, after reporting errors in the requested message format."""
    runner = ProcessRunner() if fork_servers is None else ProcessRunner(fork_servers)
    report().start(MessageOptions(), os.environ)
    status = _caught(partial(_run_subcommand, arguments, runner), runner)
    status = _caught(partial(_finish, status), runner)
    remove_directories_left()
    return status


def _caught(action: Callable[[], int], runner: ProcessRunner) -> int:
    try:
        with interruptible(runner):
            try:
                return action()
            finally:
                runner.close()
    except MlirOffloadError as error:
        show_error(error)
        return error.exit_status
    except KeyboardInterrupt:
        show("mlir-offload: interrupted")
        return _INTERRUPTED
    except (OSError, MemoryError, RuntimeError, ImportError, SystemError) as error:
        known = _of_the_system(error)
        if known is None:
            raise
        show_error(known)
        return known.exit_status


def _run_subcommand(arguments: tuple[str, ...], runner: ProcessRunner) -> int:
    arguments, files = _expanded(arguments)
    arguments = _joined_config(arguments)
    report().sources = (*files, *configuration_files(arguments))
    options, words = take_message_options(arguments)
    _check_message_outputs(options, words)
    # Errors in configuration files are reported in the format that the command line requests.
    report().start(options, os.environ)
    complete = _configured(subcommand_first(arguments), Path.cwd())
    if complete is None:
        return 0
    options, rest = take_message_options(complete)
    report().start(options, os.environ)
    report().words = frozenset(rest)
    try:
        status = _dispatch(rest, runner)
    except MlirOffloadError as error:
        if _is_to_be_packed(error):
            reproduce.pack_call(rest, runner, error)
        raise
    if options.reproduce is not None and "-###" not in rest:
        reproduce.pack_call(rest, runner)
    return status


def _configured(arguments: tuple[str, ...], directory: Path) -> tuple[str, ...] | None:
    """Return the arguments with those of configuration files and variables; None if all output is printed."""
    is_asked = any(word.startswith(_CONFIGURING) for word in arguments)
    is_alone = bool(arguments) and is_step(arguments[0])
    if is_alone or not (is_asked or are_set(os.environ, directory)):
        return arguments
    return config.configured(arguments, os.environ, directory)


def _joined_config(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments with `--config FILE` as one word, up to a `--`."""
    bare = _CONFIG.rstrip("=")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if bare not in arguments[: end - 1]:
        return arguments
    at = arguments.index(bare)
    return _joined_config((*arguments[:at], _CONFIG + arguments[at + 1], *arguments[at + 2 :]))


def _check_message_outputs(options: MessageOptions, words: tuple[str, ...]) -> None:
    """Raise UsageError if the message file or the reproducer archive is also an input."""
    if options.file is None and options.reproduce is None:
        return
    report().options = options
    check_message_outputs(words[1:] if words[:1] and _handler(words[0]) else words)


def _is_to_be_packed(error: MlirOffloadError) -> bool:
    """Return whether to write a reproducer for a failure: on request, and by default if a tool crashed."""
    options, failure = report().options, report().journal.failure_of(error)
    if options.reproduce is not None or failure is None or not options.reproduces_crashes:
        return options.reproduce is not None

    return tool_message.has_crashed(failure.run.completed)


def _finish(status: int) -> int:
    report().finish(status)
    return status


def _expanded(arguments: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Return the arguments with response files expanded, and the paths of these files."""
    if arguments[:1] == ("step",) or not any(word.startswith(("@", "-Wl,@")) for word in arguments):
        return arguments, ()

    return response_file.expand_arguments(arguments)


def _of_the_system(error: Exception) -> InputOutputError | None:
    """Return the error for a failure of the operating system; None for a bug of the driver."""
    # If Python runs out of memory during an import, it raises "error return without exception set".
    if isinstance(error, MemoryError) or (
        isinstance(error, SystemError) and limit.is_memory_limited()
    ):
        return limit.limit_error("mlir-offload", errno.ENOMEM)
    if not isinstance(error, OSError):
        return limit.limit_in_text("mlir-offload", str(error))
    if error.filename is None and error.errno is None:
        return None
    if isinstance(error, FileNotFoundError) and error.filename is None:
        msg = "the current directory does not exist any more"
        return InputOutputError(msg, hint="change to another one: cd ..")
    where = f"{error.filename}: " if error.filename else ""
    reached = limit.limit_error(
        f"cannot open {error.filename}" if where else "mlir-offload", error.errno
    )
    hint = "free some space, or set TMPDIR to a writable directory"
    if error.errno in {errno.EACCES, errno.EPERM}:
        hint = "check the permissions of the file and of its directory"
    return reached or InputOutputError(f"{where}{error.strerror or error}", hint=hint)


def _dispatch(arguments: tuple[str, ...], runner: ProcessRunner) -> int:
    """Call the subcommand, or the compiler if the first word is not one."""
    first = arguments[0] if arguments else "--help"
    if set(arguments) <= _VERBOSE and arguments:
        # Like clang, which prints its version before anything else.
        first = _VERSION
    handler = _handler(first)
    if _asks_for_help(first, arguments[1:]) and not (handler and first.endswith("step")):
        return _help(first if handler else "")
    if first.startswith(_COMPLETION):
        sys.stdout.write(completion.render_completion(first.removeprefix(_COMPLETION)))
        return 0
    if handler is not None:
        return handler(arguments[1:], runner)
    printing = tuple(_PRINTING)
    asked = next((word for word in own_words(arguments) if word.startswith(printing)), None)
    if asked is not None:
        return next(do for word, do in _PRINTING.items() if asked.startswith(word))(
            arguments, runner
        )

    build_subcommand.build(arguments, runner)
    return 0


def _print_of_clang(arguments: Sequence[str], runner: ProcessRunner) -> int:

    asked = [word for word in own_words(arguments) if word.startswith(_OF_CLANG)]
    others = [word for word in arguments if word not in asked]
    return choose.print_of_clang(asked, others, runner)


def _asks_for_help(first: str, others: tuple[str, ...]) -> bool:
    """Return whether help is requested."""
    return not _HELP.isdisjoint(own_words((first, *others)))


def _help(name: str) -> int:

    sys.stdout.write(option_help.render_help(option_subcommand.SUBCOMMANDS.get(name, COMPILER)))
    return 0


def _help_of(names: Sequence[str], _: ProcessRunner) -> int:
    """Print the help of a subcommand, for `help NAME`. Raises UsageError for an unknown subcommand."""
    name = names[0] if names else ""
    if name and not is_subcommand(name):
        msg = f"help {name}: no such subcommand"
        raise UsageError(msg, hint=row.value_hint(name, option_subcommand.SUBCOMMANDS))
    return _help(name)


def _version(arguments: Sequence[str], runner: ProcessRunner) -> int:

    others = [word for word in arguments if word != _VERSION]
    sys.stdout.write(version.render_version(read_arguments(others), runner))
    return 0


def _subcommand(name: str, arguments: Sequence[str], runner: ProcessRunner) -> int:
    """Import the module of a subcommand when it is called, and run it."""
    module, _, function = option_subcommand.SUBCOMMANDS[name].run.partition(":")
    run: Callable[[Sequence[str], ProcessRunner], int]
    run = getattr(import_module(f"mlir_offload.driver.{module}"), function)
    return run(arguments, runner)


def _step(arguments: Sequence[str], _: ProcessRunner) -> int:

    if not arguments or arguments[0] in _HELP:
        sys.stdout.write(parse.render_steps())
    elif _HELP.isdisjoint(arguments):
        releases.learn_given(os.environ)
        parse.parse_step(arguments).run()
    else:
        sys.stdout.write(option_help.render_help(parse.described_step(arguments[0])))
    return 0


def _compiler_step(name: str, arguments: Sequence[str], runner: ProcessRunner) -> int:

    parse.parse_compiler_step((name, *arguments)).run(runner)
    return 0


def _toolchain_id(arguments: Sequence[str], runner: ProcessRunner) -> int:

    return toolchain_id.show_toolchain_id(arguments, runner)


def _cache_key(arguments: Sequence[str], runner: ProcessRunner) -> int:

    return cache_key.show_cache_key(arguments, runner)


def _print_directory(name: str, _: Sequence[str], __: ProcessRunner) -> int:
    """Print the directory of mlir_offload.toolchain that contains the files for another build system."""
    sys.stdout.write(f"{Path(toolchain.__file__).resolve().parent / name}\n")
    return 0


# Options whose answer clang prints.
_OF_CLANG = ("-print-", "--print-", "-dumpmachine", "-dumpversion")
# Options that print information about the tools and options that the other arguments select.
_PRINTING: Mapping[str, Callable[[Sequence[str], ProcessRunner], int]] = {
    "--toolchain-id": _toolchain_id,
    "--print-cache-key": _cache_key,
    **dict.fromkeys(_OF_CLANG, _print_of_clang),
    _VERSION: _version,
}
# They begin with dashes, because a compiler cache takes a first word without dashes for an input.
_COMPILER_STEPS = (
    *("--image-step", "--host-step", "--object-step"),
    *("--module-step", "--split-step", "--device-step"),
    *("--join-step", "--source-step", "--archive-step"),
)
_HANDLERS: Mapping[str, Callable[[Sequence[str], ProcessRunner], int]] = {
    "help": _help_of,
    **dict.fromkeys((_VERSION, "-V"), _version),
    "--cmake-dir": partial(_print_directory, "cmake"),
    "--pkg-config-dir": partial(_print_directory, "pkgconfig"),
    **{name: partial(_compiler_step, name) for name in _COMPILER_STEPS},
    "step": _step,
}


def _handler(word: str) -> Callable[[Sequence[str], ProcessRunner], int] | None:
    """Return the handler of a first word; None for an input or an option of the compiler."""
    return partial(_subcommand, word) if is_subcommand(word) else _HANDLERS.get(word)
