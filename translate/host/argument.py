"""Launches that pass memrefs as parts of their descriptors, and memory that has one name only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from mlir_offload.translate.gpu_module import KernelKey, launches_in
from mlir_offload.translate.gpu_operation import arguments_of, replace_arguments
from mlir_offload.translate.host import narrow_check
from mlir_offload.translate.kernel_parameter import WIDE, KernelParameters, Parameter, position_of
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.rewriter import Rewriter

_CAST = "builtin.unrealized_conversion_cast"
_ALLOCATIONS = frozenset({"gpu.alloc", "memref.alloc", "memref.alloca"})
_VIEWS = frozenset(
    f"memref.{name}"
    for name in ("cast", "subview", "view", "reinterpret_cast", "collapse_shape", "expand_shape")
)


class ArgumentRewriter(Rewriter):
    """Rewrites launches of kernels whose parameters are parts."""

    def __init__(
        self,
        kernels: Mapping[KernelKey, KernelParameters],
        narrow: Collection[KernelKey] = (),
    ) -> None:
        """Take the kernels whose launches pass parts of memrefs, and those with indices of 32 bits."""
        super().__init__("%mo_argument_")
        self._kernels, self._narrow = kernels, narrow
        self._known = {*kernels, *narrow}

    def rewrite_function(self, function: Operation) -> None:
        """Rewrite the launches in an operation of the host."""
        launched = {id(launch): key for launch, key in launches_in(function) if key in self._known}
        self.rewrite_chosen(function, launched, self._rewrite_launch)

    def _rewrite_launch(self, launch: Operation, key: KernelKey) -> None:
        if key in self._narrow:
            narrow_check.check_fits(self, launch, key[1])
        if key in self._kernels:
            self._pass_parts(launch, self._kernels[key])
        self.insert(launch)

    def _pass_parts(self, launch: Operation, plan: KernelParameters) -> None:
        values: list[Value] = []
        for value, parameter in zip(arguments_of(launch), plan, strict=True):
            if parameter is None:
                values.append(value)
            elif parameter.parts:
                values += self._parts(value, parameter)
        replace_arguments(launch, values)

    def _parts(self, value: Value, parameter: Parameter) -> list[Value]:
        # Memory of the host has one space.
        own = replace(parameter, descriptor=replace(parameter.descriptor, is_global=False))
        struct = self.value(_CAST, (value,), own.descriptor.struct_type(WIDE))
        return [
            self.value("llvm.extractvalue", (struct,), own.part_type(place), position_of(place))
            for place in own.parts
        ]


def distinct_arguments(host: Iterable[Operation]) -> dict[KernelKey, frozenset[int]]:
    """Return the arguments of each kernel that are memory of their own in all of its launches.

    Such memory is allocated in the function that launches, and no other argument may be a part of it.
    """
    found: dict[KernelKey, frozenset[int]] = {}
    for function in host:
        launches = list(launches_in(function))
        definitions = _definitions(function) if launches else {}
        for launch, key in launches:
            own = _distinct(arguments_of(launch), definitions)
            found[key] = found.get(key, own) & own
    return found


def _definitions(function: Operation) -> dict[str, Operation | None]:
    """Return what defines each value; None for a name that several values have."""
    found: dict[str, Operation | None] = {}
    for operation in function.walk_inside():
        for name in operation.result_names:
            found[name] = None if name in found else operation
    return found


def _distinct(
    values: Iterable[Value], definitions: Mapping[str, Operation | None]
) -> frozenset[int]:
    memory = {
        number: _allocation(value.name, definitions)
        for number, value in enumerate(values)
        if value.type.startswith(("memref<", "!llvm.ptr", "!llvm.struct"))
    }
    count = Counter(memory.values())
    if any(count[name] > 1 or not name for name in memory.values()):
        return frozenset()
    return frozenset(memory)


def _allocation(name: str, definitions: Mapping[str, Operation | None]) -> str:
    """Return the name of the allocation that a value is a view of; empty if it is not known."""
    operation = definitions.get(name)
    while operation is not None and operation.name in _VIEWS:
        name = operation.operand_names[0]
        operation = definitions.get(name)
    return name if operation is not None and operation.name in _ALLOCATIONS else ""
