"""GPU operations of the host: their tokens, and the segments of their operands."""

from __future__ import annotations

from collections.abc import Sequence

from mlir_offload.translate.mlir.attribute import integer_array
from mlir_offload.translate.mlir.operation import Operation, Value

TOKEN = "!gpu.async.token"  # noqa: S105 (a type)
POINTER = "!llvm.ptr"
_SEGMENTS = "operandSegmentSizes"
_NAMES = frozenset(
    f"gpu.{name}"
    for name in ("launch_func", "memcpy", "memset", "alloc", "dealloc", "wait", "set_csr_pointers")
)
_PREFIXES = ("gpu.create_", "gpu.destroy_", "gpu.sp", "gpu.sddmm")
# The segments of gpu.launch_func: dependencies, grid, block, cluster, dynamic shared memory,
# arguments, stream.
_ARGUMENT_SEGMENT, _STREAM_SEGMENT = 11, 12


def is_gpu_operation(operation: Operation) -> bool:
    """Say whether it is an operation that may take and give tokens."""
    return operation.name in _NAMES or operation.name.startswith(_PREFIXES)


def dependencies(operation: Operation) -> list[Value]:
    """Return the tokens that it waits for: its first operands."""
    return [value for value in operation.operands if value.type == TOKEN]


def is_async(operation: Operation) -> bool:
    """Say whether it gives a token."""
    return operation.result_types[-1:] == [TOKEN]


def is_shared_alloc(operation: Operation) -> bool:
    """Say whether it allocates memory that host and device share."""
    return operation.name == "gpu.alloc" and operation.has("hostShared")


def names_stream(operation: Operation) -> bool:
    """Say whether it is a launch on a stream that the program names: `<%stream : !llvm.ptr>`."""
    if operation.name != "gpu.launch_func":
        return False
    return operation.attribute(_SEGMENTS).integers[_STREAM_SEGMENT : _STREAM_SEGMENT + 1] == (1,)


def segment(operation: Operation, index: int, count: int = 1) -> tuple[Value, ...]:
    """Return the operands of some of its segments."""
    sizes = operation.attribute(_SEGMENTS).integers
    start = sum(sizes[:index])
    return operation.operands[start : start + sum(sizes[index : index + count])]


def argument_types(launch: Operation) -> list[str]:
    """Return the types of the arguments of a `gpu.launch_func`."""
    return [value.type for value in segment(launch, _ARGUMENT_SEGMENT)]


def resize_segment(operation: Operation, index: int, count: int) -> None:
    """Note another number of operands of a segment, where it has segments."""
    sizes = list(operation.attribute(_SEGMENTS).integers)
    if sizes:
        sizes[index] = count
        operation.set_attribute(_SEGMENTS, integer_array("i32", sizes))


def depend_on(operation: Operation, tokens: Sequence[Value]) -> None:
    """Give the operation these tokens as its dependencies."""
    old = len(dependencies(operation))
    operation.operands = (*tokens, *operation.operands[old:])
    resize_segment(operation, 0, len(tokens))


def give_token(operation: Operation, name: str) -> Value:
    """Make the operation asynchronous, its token so named."""
    others = f"{operation.result_text}, " if operation.result_text else ""
    operation.result_text = f"{others}{name}"
    operation.result_types.append(TOKEN)
    return Value(name, TOKEN)
