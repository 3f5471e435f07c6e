"""Declarations of functions of MLIR's runner libraries whose type is not that of the library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from msgspec import Struct

from mlir_offload.toolchain.tables import load_table
from mlir_offload.translate.host.launch import SourceWarning
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation, function_type

_FUNCTIONS = frozenset({"func.func", "llvm.func"})
_UNRANKED = "memref<*x"
# What an unranked memref is lowered to.
_LOWERED_MEMREF = ["i64", "!llvm.ptr"]


class _Signature(Struct, frozen=True):
    """What a function takes and gives, and how a program calls it without its type being wrong."""

    takes: list[str]
    gives: list[str] = []
    hint: str = ""

    def __str__(self) -> str:
        return f"({', '.join(self.takes)}) -> ({', '.join(self.gives)})"


@cache
def _signatures() -> dict[str, _Signature]:
    """Read the table."""
    rows = load_table("mlir_offload.toolchain", "runner_libraries")["signatures"]
    return {
        name: _Signature(row.get("takes", []), row.get("gives", []), row.get("hint", ""))
        for row in rows
        for name in row["names"]
    }


def find_other_types(host: Iterable[Operation], locations: Locations) -> Iterator[SourceWarning]:
    """Yield a warning for each declaration that the library would be called wrongly by.

    LLVM links functions by their name alone: the values would be in other registers.
    """
    for operation in host:
        if operation.name not in _FUNCTIONS or not operation.is_declaration:
            continue
        signature = _signatures().get(operation.symbol)
        takes, gives = function_type(operation)
        if signature and not (
            _is_same(takes, signature.takes) and _is_same(gives, signature.gives)
        ):
            name, given = operation.symbol, f"({', '.join(takes)}) -> ({', '.join(gives)})"
            text = f"'{name}' of MLIR's runner library is {signature}, and declared as {given}"
            hint = f": {signature.hint}" if signature.hint else ""
            yield SourceWarning(f"{text}{hint}", locations.of(operation))


def _is_same(given: list[str], wanted: list[str]) -> bool:
    if any(kind.startswith(_UNRANKED) for kind in wanted) and given == _LOWERED_MEMREF:
        return True
    return list(map(_passed, given)) == list(map(_passed, wanted))


def _passed(kind: str) -> str:
    """Return a type as it is passed: an unranked memref whatever its memory space, `index` as i64."""
    if kind.startswith(_UNRANKED):
        element = kind.removeprefix(_UNRANKED).partition(",")[0].removesuffix(">")
        return f"{_UNRANKED}{_passed(element)}>"
    return "i64" if kind == "index" else kind
