"""The function that the C runtime starts a program with: the forms of it that work."""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.mlir.location import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.type import function_type, integer_width

_FUNCTIONS = frozenset({"func.func", "llvm.func"})
_MAIN = "main"
_PARAMETERS = ("i32", "!llvm.ptr", "!llvm.ptr")
_LONGEST = 64


def check_main(operations: Iterable[Operation], locations: Locations) -> None:
    """Raise SourceError for a `main` that does not get what it takes, or whose result is lost."""
    for operation in operations:
        if operation.name not in _FUNCTIONS or operation.is_declaration:
            continue
        if operation.symbol != _MAIN:
            continue
        takes, gives = function_type(operation)
        gets_all = tuple(takes) == _PARAMETERS[: len(takes)]
        if gets_all and (not gives or (len(gives) == 1 and _is_status(gives[0]))):
            continue
        msg = f"a program cannot start with @main of type ({', '.join(takes)}) -> ({', '.join(gives)})"
        hint = (
            "use func.func @main(), or @main(%argc: i32, %argv: !llvm.ptr), with an integer result or none; "
            "a function for other callers needs another name, or -shared or -fPIC"
        )
        raise SourceError(msg, hint=hint, location=locations.of(operation))


def _is_status(kind: str) -> bool:
    is_signless = kind.startswith("i") and 0 < integer_width(kind) <= _LONGEST
    return kind == "index" or is_signless
