"""What the host's text shows of its launches: blocks that no GPU runs, and memory that no GPU reaches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from msgspec import Struct, field

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.workgroup_memory import WorkgroupLimit
from mlir_offload.translate.gpu_module import KernelKey, launches_in
from mlir_offload.translate.gpu_operation import segment
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import render_symbol

MOST_THREADS = 1024
_CONSTANTS = frozenset({"arith.constant", "llvm.mlir.constant"})
_BLOCK, _DYNAMIC = 4, 10
_ALLOCATIONS = frozenset({"memref.alloc", "memref.alloca"})
_VIEWS = frozenset(
    f"memref.{name}"
    for name in ("cast", "subview", "view", "reinterpret_cast", "collapse_shape", "expand_shape")
)
# What may hand the memory to a function that registers it.
_ESCAPES = frozenset({"func.call", "llvm.call", "func.call_indirect", "gpu.host_register"})


_UNRANKED = (
    "a launch gets an unranked memref, whose sizes are in memory of the host, which GPUs do not reach: "
    "memref.cast it to a memref with a rank before the launch"
)


class SourceWarning(Struct, frozen=True):
    """Something in a program that is likely wrong, and where it is."""

    message: str
    location: str


class LaunchCheck(Struct, frozen=True):
    """Checks the launches of host functions; `used` are the bytes that each kernel has already."""

    locations: Locations
    limits: Sequence[WorkgroupLimit] = ()
    used: Mapping[KernelKey, int] = field(default_factory=dict)

    def check(self, operations: Iterable[Operation]) -> None:
        """Raise SourceError for a launch whose constants are beyond a limit."""
        known: dict[str, int] = {}
        for function in operations:
            launched = {id(launch): key for launch, key in launches_in(function)}
            for operation in function.walk_inside() if launched else ():
                note_constant(operation, known)
                if id(operation) in launched:
                    self._check_threads(operation, known)
                    self._check_memory(operation, known, launched[id(operation)])

    def _check_threads(self, launch: Operation, known: Mapping[str, int]) -> None:
        sizes = [known.get(value.name, 1) for value in segment(launch, _BLOCK, 3)]
        threads = prod(max(1, size) for size in sizes)
        if threads > MOST_THREADS:
            msg = f"a launch with blocks of {threads} threads"
            hint = f"a block has at most {MOST_THREADS} threads"
            raise SourceError(msg, hint=hint, location=self.locations.of(launch))

    def _check_memory(self, launch: Operation, known: Mapping[str, int], kernel: KernelKey) -> None:
        asked = sum(known.get(value.name, 0) for value in segment(launch, _DYNAMIC))
        size = asked + self.used.get(kernel, 0)
        limit = next((one for one in self.limits if asked and size > one.all_bytes), None)
        if limit is not None:
            msg = (
                f"a launch of {render_symbol(kernel[1])} with {size} bytes of workgroup memory, "
                f"and {limit.arch} takes {limit.all_bytes}"
            )
            hint = f"use less memory in a block, or leave {limit.arch} out of --offload-arch"
            raise SourceError(msg, hint=hint, location=self.locations.of(launch))

    def unreachable(self, operations: Iterable[Operation]) -> Iterator[SourceWarning]:
        """Yield a warning for each launch that gets memory of the host, by an allocation or in a descriptor."""
        roots: dict[str, str] = {}
        launched: dict[str, Operation] = {}
        escaped: set[str] = set()
        for operation in (one for function in operations for one in function.walk_inside()):
            operands = [roots[name] for name in operation.operand_names if name in roots]
            if operation.name in _ALLOCATIONS:
                roots[operation.result_text] = operation.result_text
            elif operation.name in _VIEWS and operands:
                roots[operation.result_text] = operands[0]
            elif operation.name == "gpu.launch_func":
                launched |= {root: operation for root in operands if root not in launched}
                if any(kind.startswith("memref<*x") for kind in operation.operand_types):
                    yield SourceWarning(_UNRANKED, self.locations.of(operation))
            elif operation.name in _ESCAPES:
                escaped.update(operands)
            elif operation.result_text in roots:
                # Regions that are next to each other may give values the same name.
                del roots[operation.result_text]
        for root, launch in launched.items():
            if root not in escaped:
                text = "a launch gets memory of the host, which GPUs reach only after gpu.host_register"
                yield SourceWarning(text, self.locations.of(launch))


def note_constant(operation: Operation, known: dict[str, int]) -> None:
    """Keep the number that an operation gives its result; forget what had the name before."""
    number = None
    if operation.name in _CONSTANTS:
        number = operation.attribute("value").integer
    if number is not None:
        known[operation.result_text] = number
    else:
        known.pop(operation.result_text, None)
