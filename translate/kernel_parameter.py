"""The parameters of a kernel: a memref as the parts of its descriptor that the kernel reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.mlir.operation import Operation, function_type
from mlir_offload.translate.mlir.syntax import MLIR, Attribute, parse_shaped


class ParameterTypeError(SourceError):
    """A `kernel` takes a parameter of a type that its target does not have, found in its LLVM IR."""

    def __init__(self, kernel: str, kind: str, why: str, *, hint: str) -> None:
        """Name the kernel as its image does."""
        super().__init__(f"kernel '{kernel}' has a parameter of type {kind}, {why}", hint=hint)
        self.kernel = kernel


class ParameterForm(StrEnum):
    """How a kernel takes its memrefs.

    `whole`: as memrefs; `parts`: as the parts of their descriptors, which is what they are lowered to;
    `needed`: those parts that it reads, if only launches of the same program launch it.
    """

    WHOLE = "whole"
    PARTS = "parts"
    NEEDED = "needed"


Place = tuple[int, ...]
"""The place of a part in a descriptor, as llvm.extractvalue has it."""


def position_of(place: Place) -> dict[str, str]:
    """Return the place as llvm.extractvalue and llvm.insertvalue have it."""
    return {"position": f"array<i64: {', '.join(map(str, place))}>"}


WIDE = 64
"""The bits of `index` on the host."""
ALLOCATED, POINTER, OFFSET = (0,), (1,), (2,)
_SIZES, _STRIDES = 3, 4
_GLOBAL = frozenset({"1", "1 : i32", "1 : i64", "#gpu.address_space<global>"})
# Operations that read no size of a memref, and which of their operands it is.
_ACCESSES = {
    "affine.load": 0,
    "affine.store": 1,
    "memref.atomic_rmw": 1,
    "memref.generic_atomic_rmw": 0,
    "memref.load": 0,
    "memref.store": 1,
    "vector.load": 0,
    "vector.store": 1,
}
_READS = frozenset({"affine.load", "memref.dim", "memref.load", "vector.load"})
# These read the allocated pointer.
_FREES = frozenset({"memref.dealloc", "memref.realloc"})


class Descriptor(Struct, frozen=True):
    """What the type of a memref tells of its descriptor; None for what is known at run time only."""

    element: str
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    offset: int | None = 0
    is_global: bool = False

    @property
    def pointer_type(self) -> str:
        """Return the type of its pointers."""
        return "!llvm.ptr<1>" if self.is_global else "!llvm.ptr"

    def struct_type(self, bits: int) -> str:
        """Return the type that the memref is lowered to, with numbers of some bits."""
        pointer, rank = self.pointer_type.removeprefix("!llvm."), len(self.sizes)
        lists = f", array<{rank} x i{bits}>" * 2 if rank else ""
        return f"!llvm.struct<({pointer}, {pointer}, i{bits}{lists})>"

    def places(self) -> Iterator[tuple[Place, int | None]]:
        """Yield the place of each number in it, and the number if it is known."""
        yield OFFSET, self.offset
        for first, numbers in ((_SIZES, self.sizes), (_STRIDES, self.strides)):
            for index, number in enumerate(numbers):
                yield (first, index), number


class Parameter(Struct, frozen=True):
    """How a memref is passed: which parts of its descriptor; `is_read_only` if the kernel only reads it."""

    descriptor: Descriptor
    parts: tuple[Place, ...]
    is_read_only: bool = False

    def part_type(self, place: Place) -> str:
        """Return the type of a part as it is passed."""
        return self.descriptor.pointer_type if place in {ALLOCATED, POINTER} else "i64"


KernelParameters = tuple[Parameter | None, ...]
"""How each parameter of a kernel is passed; None for one that is passed as it is."""


def plan_parameters(kernel: Operation, *, only_needed: bool) -> KernelParameters:
    """Return how a `gpu.func` takes its parameters."""
    names = [one.name for one in kernel.regions[0].blocks[0].arguments]
    inside = kernel.walk_inside()
    frees = any(operation.name in _FREES for operation in inside)
    found: list[Parameter | None] = []
    for name, kind in zip(names, function_type(kernel)[0], strict=False):
        descriptor = parse_descriptor(kind)
        if descriptor is None:
            found.append(None)
            continue
        users = [operation for operation in inside if name in operation.operand_names]
        needs_all = frees or not only_needed
        parts = _all_parts(descriptor) if needs_all else _needed_parts(descriptor, name, users)
        is_read_only = all(user.name in _READS for user in users)
        found.append(Parameter(descriptor, parts, is_read_only))
    return tuple(found)


def parse_descriptor(kind: str) -> Descriptor | None:
    """Return what a type tells; None unless it is a memref in memory that a launch can pass."""
    memref = parse_shaped(kind, "memref")
    if memref is None:
        return None
    layout, space = _layout_and_space(memref.parameters)
    if space and space not in _GLOBAL:
        return None
    is_global = bool(space)
    if not layout:
        strides = _packed_strides(memref.sizes)
        return Descriptor(memref.element, memref.sizes, strides, 0, is_global)
    strided = Attribute(layout)
    if strided.name != "strided":
        return None
    listed, *others = MLIR.split_list(strided.body)
    strides = tuple(map(_number, MLIR.split_list(listed[1:-1])))
    offset = _number(others[0].removeprefix("offset: ")) if others else 0
    return Descriptor(memref.element, memref.sizes, strides, offset, is_global)


def _layout_and_space(parameters: Sequence[str]) -> tuple[str, str]:
    if len(parameters) > 1:
        return parameters[0], parameters[1]
    one = parameters[0] if parameters else ""
    is_layout = one.startswith(("strided<", "affine_map<", "#map"))
    return (one, "") if is_layout else ("", one)


def _number(text: str) -> int | None:
    return None if text == "?" else int(text)


def _packed_strides(sizes: Sequence[int | None]) -> tuple[int | None, ...]:
    strides: list[int | None] = [1]
    for size in reversed(sizes[1:]):
        last = strides[-1]
        strides.append(None if size is None or last is None else size * last)
    return tuple(reversed(strides)) if sizes else ()


def _all_parts(descriptor: Descriptor) -> tuple[Place, ...]:
    return (ALLOCATED, POINTER, *(place for place, _ in descriptor.places()))


def _needed_parts(
    descriptor: Descriptor, name: str, users: Sequence[Operation]
) -> tuple[Place, ...]:
    if not users:
        return ()
    needs_sizes = not all(_is_access(user, name) for user in users)
    numbers = (
        place
        for place, number in descriptor.places()
        if number is None and (needs_sizes or place[0] != _SIZES)
    )
    return (POINTER, *numbers)


def _is_access(user: Operation, name: str) -> bool:
    names = user.operand_names
    place = _ACCESSES.get(user.name)
    return place is not None and names.count(name) == 1 and names.index(name) == place
