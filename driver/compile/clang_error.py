"""The error of a source in C, C++ or LLVM IR: clang's own text is what a person reads."""

from __future__ import annotations

import re

from mlir_offload.toolchain.errors import MlirOffloadError, SourceError, UsageError
from mlir_offload.toolchain.process import Completed, tool_failed
from mlir_offload.translate import tool_message

_REFUSED = re.compile(
    r"^(?:clang[\w+-]*: )?error: (unknown argument.*|invalid value .*|unsupported (?:option|argument) .*)",
    re.MULTILINE,
)


def clang_error(completed: Completed) -> MlirOffloadError:
    """Return the error for a source that clang does not compile; its arguments are the user's."""
    refused = _REFUSED.search(completed.stderr)
    if refused is not None:
        return UsageError(refused[1], hint="correct it: the option is passed on to clang")
    said = tool_message.parse_messages(completed.command.program, completed.stderr)
    first = next((one for one in said if one.severity is tool_message.Severity.ERROR), None)
    if first is None or not first.line or tool_message.has_crashed(completed):
        return tool_failed(completed)
    error = SourceError(first.text, location=first.location)
    error.printed = completed.stderr
    return error
