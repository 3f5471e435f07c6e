"""The calls of mlir-opt and mlir-translate, and the text between them.

Half of what a small program costs is the start of mlir-opt and of mlir-translate, so that host text and
device modules of a small program are joined to one text. Each part stays a module of its own, that of a
device in a `gpu.module`, which tells mlir-opt what passes it gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.toolchain.errors import SourceError, ToolFailedError
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.process import Command, as_operand
from mlir_offload.toolchain.target import AMDGPU_TRIPLE, NVPTX_TRIPLE, SPIRV_TRIPLE, kind_of_triple
from mlir_offload.translate import (
    barrier_place,
    fast_math,
    gpu_module,
    narrow_address,
    narrow_cast,
)
    if triple == NVPTX_TRIPLE:
        # mlir-translate 22 would verify for others that no alloca lies where memref.alloca puts it.
        signature = module.operation.signature
        signature.attributes = {_TRIPLE: quoted(triple), **signature.attributes}
    return module.render_part(body)


def _has_narrow_indices(operations: Iterable[Operation]) -> bool:
    return any(
        inner.name == _ADDRESS and _NARROW_INDEX in inner.head
        for operation in operations
        for inner in operation.walk_inside()
    )


def _is_public(operation: Operation) -> bool:
    visibility = operation.attribute("sym_visibility").string
    return operation.name == "llvm.func" and visibility != "private"


def _internalize(operation: Operation) -> None:

    is_external = operation.attribute("linkage") == _EXTERNAL
    if is_external and _is_definition(operation) and not gpu_module.is_kernel(operation):
        operation.set_attribute("linkage", Attribute(_INTERNAL))
        # HIP's is protected, which LLVM takes for external symbols only.
        operation.set_attribute("visibility_", Attribute(_DEFAULT_VISIBILITY))


def _is_definition(operation: Operation) -> bool:
    if operation.name == "llvm.mlir.global":
        return not operation.is_declaration or operation.has("value")
    return operation.name == "llvm.func" and not operation.is_declaration


def check_lowered(
    operations: Iterable[Operation],
    locations: Locations,
    *,
    place: str,
    triple: str = NVPTX_TRIPLE,
) -> None:
    """Raise SourceError where an operation is left that mlir-translate or the back end does not know.

    The first operation that does something is named: casts and functions are left around it.
    """
    left = _left_in(operations, triple)
    if left:
        first = min(left, key=_rank)
        raise _left_over(first, locations.of(first), place)


def _left_in(operations: Iterable[Operation], triple: str) -> list[Operation]:
    """Return the operations that have not been lowered."""
    known = _LOWERED[triple]
    kind = kind_of_triple(triple)
    translated = LOWERINGS[kind].called_operations() if kind else CALLED_OPERATIONS
    return [
        inner
        for operation in operations
        for inner in (operation, *operation.walk_inside())
        if inner.name.partition(".")[0] not in known and inner.name not in translated
    ]


def _rank(operation: Operation) -> int:
    if operation.name == _CAST:
        return 1
    return 2 if operation.name.startswith("func.") else 0


def _left_over(operation: Operation, location: str, place: str) -> SourceError:
    """Return the error for an operation that no pass of the recipe lowers."""
    name, given, wanted = operation.name, operation.operand_types, operation.result_types
    if any("tensor<" in kind for kind in (*given, *wanted, operation.attribute("function_type"))):
        msg = f"{name} on tensors is not supported in {place}"
        hint = "bufferize the program before, for example with mlir-opt -one-shot-bufferize"
    elif name == _CAST:
        msg = f"no lowering from {', '.join(given)} to {', '.join(wanted)} in {place}"
        hint = "an operation next to this place has none; rewrite it with other operations"
    else:
        msg = f"{name} is not supported in {place}"
        hint = "no stock pass lowers it there; rewrite it with other operations"
    return SourceError(msg, location=location, hint=hint)
