"""What tells the outlined kernels of one file from those of the files that it is linked with."""

from __future__ import annotations

from mlir_offload.translate.hermetic import hermetic_text
from mlir_offload.translate.mlir.module import Module
from mlir_offload.translate.mlir.operation import Operation

_FUNCTIONS = frozenset({"func.func", "llvm.func"})


def owner_of(module: Module, source_text: str) -> str:
    """Return a function that the file exports, or its content if it exports none."""
    exported = (op.symbol for op in module.operations if _is_exported(op))
    return min(exported, default=source_text)


def unit_of(module: Module, device_module: Operation, *, file: str, owner: str) -> str:
    """Return what names the kernels of a device module: they are unique in any program.

    It is made of the file's name, of the device module itself and of its `owner`, a function that the
    file exports: two files that export one name cannot be linked. So a change of other code keeps the
    names, and what was compiled stays valid. A file that exports nothing is identified by its content.
    """
    text = hermetic_text(module.render_part([device_module]))
    return f"{file}\0{owner}\0{text}"


def _is_exported(operation: Operation) -> bool:
    if operation.name not in _FUNCTIONS or operation.is_declaration:
        return False
    linkage = operation.attribute("linkage").enumerator
    is_private = operation.attribute("sym_visibility").string == "private"
    return not is_private and linkage in {"", "external"}
