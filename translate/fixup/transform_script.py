"""Scripts of the transform dialect: a pass has to run them, and nothing of them may reach the lowering."""

from __future__ import annotations

from msgspec.structs import replace

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.mlir_text import Locations, ModuleText, OperationText

INTERPRETER = "transform-interpreter"
"""The pass that runs the scripts of a program."""

_DIALECT = "transform."
_MODULE = "builtin.module"


def without_scripts(module: ModuleText, locations: Locations, *, are_run: bool) -> ModuleText:
    """Return the program without its scripts, and without modules that hold nothing else.

    Raises SourceError for a script that no pass has run.
    """
    kept = tuple(operation for operation in module.operations if not _is_script(operation))
    scripts = [op for op in module.operations if _is_script(op) and _has_operations(op)]
    if scripts and not are_run:
        msg = "the program has a transform script, but no pass runs it"
        hint = f"compile it with --pipeline={INTERPRETER},gpu, or ...,linalg"
        raise SourceError(msg, hint=hint, location=locations.of(scripts[0].lines[-1]))
    return replace(module, operations=kept)


def _is_script(operation: OperationText) -> bool:
    if operation.name == _MODULE:
        return all(inner.name.startswith(_DIALECT) for inner in operation.body)
    return operation.name.startswith(_DIALECT)


def _has_operations(operation: OperationText) -> bool:
    return operation.name != _MODULE or bool(operation.body)
