"""What tells the outlined kernels of one file from those of the files that it is linked with."""

from __future__ import annotations

import re

from mlir_offload.translate.hermetic import hermetic_text
from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import ModuleText, OperationText, symbol_name

_FUNCTIONS = frozenset({"func.func", "llvm.func"})
_LINKAGE = re.compile(r"\blinkage = #llvm\.linkage<(\w+)>")
_PRIVATE = 'sym_visibility = "private"'


def owner_of(module: ModuleText, source_text: str) -> str:
    """Return a function that the file exports, or its content if it exports none."""
    exported = (symbol_name(op) for op in module.operations if _is_exported(op))
    return min(exported, default=source_text)


def unit_of(module: ModuleText, device_module: OperationText, *, file: str, owner: str) -> str:
    """Return what names the kernels of a device module: they are unique in any program.

    It is made of the file's name, of the device module itself and of its `owner`, a function that the
    file exports: two files that export one name cannot be linked. So a change of other code keeps the
    names, and what was compiled stays valid. A file that exports nothing is told by its content.
    """
    text = hermetic_text(module.render(device_module.lines))
    return f"{file}\0{owner}\0{text}"


def _is_exported(operation: OperationText) -> bool:
    if operation.name not in _FUNCTIONS or operation.is_declaration:
        return False
    linkage = MLIR.search(_LINKAGE, operation.attributes)
    return _PRIVATE not in operation.attributes and (linkage is None or linkage[1] == "external")
