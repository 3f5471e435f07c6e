"""Scripts of the transform dialect: a pass has to run them, and nothing of them may reach the lowering."""

from __future__ import annotations

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.mlir.location import Locations
from mlir_offload.translate.mlir.module import Module
from mlir_offload.translate.mlir.operation import Operation

INTERPRETER = "transform-interpreter"
"""The pass that runs the scripts of a program."""

_DIALECT = "transform."
_MODULE = "builtin.module"


def drop_scripts(module: Module, locations: Locations, *, are_run: bool) -> None:
    """Take the scripts out of a program, and modules that hold nothing else.

    Raises SourceError for a script that no pass has run.
    """
    scripts = [operation for operation in module.operations if _is_script(operation)]
    left = next((one for one in scripts if one.name != _MODULE or one.operations), None)
    if left is not None and not are_run:
        msg = "the program has a transform script, but no pass runs it"
        hint = f"compile it with --pipeline={INTERPRETER},gpu, or ...,linalg"
        raise SourceError(msg, hint=hint, location=locations.of(left))
    for operation in scripts:
        module.operations.remove(operation)


def _is_script(operation: Operation) -> bool:
    if operation.name == _MODULE:
        return all(inner.name.startswith(_DIALECT) for inner in operation.operations)
    return operation.name.startswith(_DIALECT)
