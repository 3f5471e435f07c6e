"""GPU operations of the host: their tokens, and the segments of their operands."""

from __future__ import annotations

from collections.abc import Sequence

from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import integer_array

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
_GRID_SEGMENT, _BLOCK_SEGMENT = 1, 4
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


def grid_and_block(launch: Operation) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Return how many blocks a `gpu.launch_func` starts in each dimension, and their threads."""
    return segment(launch, _GRID_SEGMENT, 3), segment(launch, _BLOCK_SEGMENT, 3)


def arguments_of(launch: Operation) -> tuple[Value, ...]:
    """Return the arguments of a `gpu.launch_func`."""
    return segment(launch, _ARGUMENT_SEGMENT)


def argument_types(launch: Operation) -> list[str]:
    """Return the types of the arguments of a `gpu.launch_func`."""
    return [value.type for value in arguments_of(launch)]


def replace_arguments(launch: Operation, values: Sequence[Value]) -> None:
    """Give a `gpu.launch_func` other arguments."""
    sizes = launch.attribute(_SEGMENTS).integers
    start = sum(sizes[:_ARGUMENT_SEGMENT])
    stop = start + sizes[_ARGUMENT_SEGMENT]
    given = launch.operands
    launch.operands = (*given[:start], *values, *given[stop:])
    resize_segment(launch, _ARGUMENT_SEGMENT, len(values))


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
