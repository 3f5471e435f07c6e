"""Convert an error of clang for C, C++ or LLVM IR; clang's own output is kept as the printed text."""

from __future__ import annotations

from pathlib import PurePath

from mlir_offload.toolchain.errors import MlirOffloadError, SourceError, UsageError
from mlir_offload.toolchain.process import Completed, tool_failed
from mlir_offload.translate import tool_message

_LLVM_IR = (".ll", ".bc")
_OPTION_OF_LLVM = " (LLVM option parsing): "


def clang_error(completed: Completed) -> MlirOffloadError:
    """Return the error for a source that clang rejects, or for arguments of the user that it rejects."""
    said = tool_message.parse_messages(completed.command.program, completed.stderr)
    first = next((one for one in said if one.severity is tool_message.Severity.ERROR), None)
    if tool_message.has_crashed(completed):
        return tool_failed(completed)
    if first is not None and first.line:
        error: MlirOffloadError = SourceError(first.text, location=first.location)
    elif _is_about_arguments(completed, first):
        text = first.text if first is not None else completed.stderr.partition("\n")[0]
        error = UsageError(text.removeprefix(f"clang{_OPTION_OF_LLVM}"))
    else:
        return tool_failed(completed)
    error.printed = completed.stderr
    return error


def _is_about_arguments(completed: Completed, first: tool_message.ToolMessage | None) -> bool:
    """Return whether clang rejects its command line, and the message names no temporary file of the driver."""
    argv = completed.command.argv
    if any(word.endswith(_LLVM_IR) for word in argv):
        return False
    output = argv[argv.index("-o") + 1] if "-o" in argv[:-1] else ""
    is_ours = bool(output) and str(PurePath(output).parent) in completed.stderr
    is_said = first is not None and not first.file and not first.text.startswith("error in backend")
    return (
        completed.returncode == 1
        and not is_ours
        and (is_said or _OPTION_OF_LLVM in completed.stderr)
    )
