"""The rule of skew that the words of a tool tell of, which failed."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.toolchain.errors import MlirOffloadError, ToolFailedError
from mlir_offload.toolchain.process import Completed
from mlir_offload.toolchain.skew.rule import rule_said

_IR_SUFFIXES = (".bc", ".ll")


def explained(error: MlirOffloadError, completed: Completed, workspace: Path) -> MlirOffloadError:
    """Return the error of a tool that failed, with the rule that its words tell of and its hint.

    The file that it stopped at is named where the user handed it in, outside of the workspace.
    """
    rule = rule_said(completed.stderr) if isinstance(error, ToolFailedError) else None
    if rule is None or error.rule:
        return error
    error.rule, error.hint = rule.name, rule.hint
    if not error.location:
        files = (Path(word) for word in completed.command.argv if word.endswith(_IR_SUFFIXES))
        given = (str(path) for path in files if workspace not in path.parents)
        error.location = next(given, "")
    return error
