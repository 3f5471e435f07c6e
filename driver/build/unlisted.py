"""Ask clang about options that its option list lacks, if no input is compiled by clang."""

from __future__ import annotations

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.option.checks import warn_of_arguments
from mlir_offload.driver.option.clang_option import find_clang_option
from mlir_offload.driver.option.compile_options import PREPROCESSED_SUFFIXES, CompileOptions
from mlir_offload.driver.option.table import COMPILER
from mlir_offload.toolchain.process import Command
from mlir_offload.translate.tool_message import Severity, parse_messages


def check_unlisted(context: BuildContext) -> None:
    """Warn about options that clang does not have. Raises UsageError with -Werror.

    For C and C++ inputs such an option is passed to clang, which rejects it. Without such an input a
    misspelled option would be dropped silently. It is not an error, because a project's flags may be for GCC.
    """
    options = context.options
    if any(path.suffix in PREPROCESSED_SUFFIXES for path in options.inputs):
        return
    words = _unlisted(options)
    if words:
        clang = str(context.llvm.tool("clang"))
        command = Command((clang, "-fsyntax-only", *words, "-x", "c++", "/dev/null"))
        completed = context.executor.runner.run(command)
        said = parse_messages(command.program, completed.stderr)
        errors = (one.text for one in said if one.severity is Severity.ERROR)
        warn_of_arguments(options, errors)


def _unlisted(options: CompileOptions) -> list[str]:
    taken = set(options.compiler_arguments)
    return [
        name
        for name, value in options.spelled
        if not value
        and name in taken
        and COMPILER.find(name) is None
        and find_clang_option(name) is None
    ]
