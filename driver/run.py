"""Compile, link and run a program."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mlir_offload.driver.build.subcommand import build_opened
from mlir_offload.driver.compile.context import open_build
from mlir_offload.driver.option.command_line import CompileOptions, Mode, parse_arguments
from mlir_offload.driver.system.workspace import open_workspace
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.process import Command, ProcessRunner


def run_program(arguments: Sequence[str], runner: ProcessRunner) -> int:
    """Build from the arguments before `--`, run the program with those after it; return its exit status.

    Raises MlirOffloadError if the program cannot be built or started.
    """
    own, program_arguments = _cut(arguments)
    options = parse_arguments(own)
    _check_operands(options)
    if options.mode is not Mode.LINK or options.shared:
        msg = "run needs a whole program: -c, -S, -emit-llvm and -shared do not make one"
        raise UsageError(msg, hint="leave that option out")
    with open_workspace() as place:
        output = options.output or place / "program"
        with open_build(replace(options, output=output), runner) as opened:
            build_opened(opened)
        if options.dry_run:
            return 0
        return runner.run_attached(Command((str(output.absolute()), *program_arguments)))


def _check_operands(options: CompileOptions) -> None:
    """Raise UsageError for an argument of the program if the user forgot `--`."""
    first, *others = options.inputs
    strange = next((path for path in others if not path.suffix and not path.exists()), None)
    if strange is not None and first.exists():
        msg = f"'{strange}' is not an input of the compiler"
        hint = f"write -- before the arguments of the program: run {first} -- {strange}"
        raise UsageError(msg, hint=hint)


def _cut(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what precedes and what follows the first `--`."""
    if "--" not in arguments:
        return tuple(arguments), ()
    at = list(arguments).index("--")
    return tuple(arguments[:at]), tuple(arguments[at + 1 :])
