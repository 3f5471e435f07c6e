"""Kernels that a program declares and launches, and that another file defines, such as CUDA C++.

They are written as declarations with `gpu.kernel` in a `gpu.module`:
`llvm.func @scale(!llvm.ptr, f32) attributes {gpu.kernel}`. MLIR checks neither the number nor the
types of what such a kernel is launched with.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.gpu_module import KernelKey, is_declared_kernel, launches_in
from mlir_offload.translate.gpu_operation import argument_types
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation, function_type
from mlir_offload.translate.mlir.syntax import Attribute, render_symbol

POINTER_HINT = (
    "pass its pointer, as C++ takes it: memref.extract_aligned_pointer_as_index, "
    "arith.index_cast to i64, llvm.inttoptr"
)


class DeclaredKernel(Struct, frozen=True):
    """A kernel that another file defines, and the types of its parameters as launches spell them."""

    module: str
    name: str
    types: tuple[str, ...]


def read_declared(module: Operation, locations: Locations) -> tuple[DeclaredKernel, ...]:
    """Return the kernels that a `gpu.module` declares.

    Raises SourceError where one takes what has no counterpart in C++: a memref becomes several
    arguments.
    """
    return tuple(
        _read_declared(module.symbol, operation, locations)
        for operation in module.operations
        if is_declared_kernel(operation)
    )


def check_declared_launches(
    operation: Operation, declared: Mapping[KernelKey, DeclaredKernel], locations: Locations
) -> None:
    """Raise SourceError for a launch with other arguments than the declared kernel takes."""
    for launch, launched in launches_in(operation) if declared else ():
        kernel = declared.get(launched)
        if kernel is None:
            continue
        given = argument_types(launch)
        if tuple(map(_plain, given)) == kernel.types:
            continue
        msg = (
            f"kernel {render_symbol(kernel.name)} is launched with ({', '.join(given)}), but "
            f"declared with ({', '.join(kernel.types)})"
        )
        has_memref = any(kind.startswith("memref<") for kind in given)
        hint = POINTER_HINT if has_memref else "launch it with the types that its author declared"
        raise SourceError(msg, hint=hint, location=locations.of(launch))


def _read_declared(module: str, operation: Operation, locations: Locations) -> DeclaredKernel:
    name, place = operation.symbol, locations.of(operation)
    types, results = function_type(operation)
    if results:
        msg = f"kernel {render_symbol(name)} is declared with a result"
        raise SourceError(msg, hint="kernels return nothing", location=place)
    memref = next((kind for kind in types if "memref<" in kind), None)
    if memref is not None:
        msg = f"kernel {render_symbol(name)} is declared with {memref}, which is not one argument in C++"
        raise SourceError(msg, hint=f"declare !llvm.ptr; {POINTER_HINT}", location=place)
    return DeclaredKernel(module, name, tuple(map(_plain, types)))


def _plain(kind: str) -> str:
    """Return a type as the host passes it: index as i64, every pointer alike."""
    kind = kind.removeprefix("!llvm.")
    if kind == "index":
        return "i64"
    return "ptr" if Attribute(kind).name == "ptr" else kind
