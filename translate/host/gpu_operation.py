"""GPU operations of the host in parts, so that their tokens can be exchanged."""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import parse_operation, split_signature

TOKEN = "!gpu.async.token"  # noqa: S105 (a type)
POINTER = "!llvm.ptr"
_SEGMENTS = re.compile(r"operandSegmentSizes = array<i32: ([\d, ]+)>")
_HOST_SHARED = re.compile(r"<\{[^}]*\bhostShared\b")
_NEEDLE = re.compile(
    r'"gpu\.(?:launch_func|memcpy|memset|alloc|dealloc|wait'
    r'|create_\w+|destroy_\w+|sp\w+|sddmm\w*|set_csr_pointers)"\('
)
# The segments of gpu.launch_func: dependencies, grid, block, cluster, dynamic shared memory,
# arguments, stream.
_STREAM_SEGMENT = 12


def is_gpu_operation(line: str) -> bool:
    """Say whether the line is an operation that may take and give tokens."""
    return _NEEDLE.search(line) is not None


class GpuOperation(Struct, frozen=True):
    """An operation that takes and gives tokens, in parts that can be put together again."""

    indent: int
    name: str
    results: tuple[str, ...]
    result_types: tuple[str, ...]
    operands: tuple[str, ...]
    operand_types: tuple[str, ...]
    attributes: str
    location: str

    @property
    def dependencies(self) -> tuple[str, ...]:
        """Return the tokens that it waits for: its first operands."""
        pairs = zip(self.operands, self.operand_types, strict=True)
        return tuple(operand for operand, kind in pairs if kind == TOKEN)

    @property
    def is_async(self) -> bool:
        """Say whether it gives a token."""
        return bool(self.result_types) and self.result_types[-1] == TOKEN

    @property
    def is_shared_alloc(self) -> bool:
        """Say whether it allocates memory that host and device share."""
        return self.name == "gpu.alloc" and _HOST_SHARED.search(self.attributes) is not None

    @property
    def values(self) -> tuple[str, ...]:
        """Return its results as other operations name them."""
        groups = (result.partition(":") for result in self.results)
        return tuple(
            f"{name}#{index}" if count else name
            for name, _, count in groups
            for index in range(int(count or 1))
        )

    def depending_on(self, *tokens: str) -> GpuOperation:
        """Return the operation with these tokens as its dependencies."""
        old = len(self.dependencies)
        return replace(
            self,
            operands=(*tokens, *self.operands[old:]),
            operand_types=(*(TOKEN for _ in tokens), *self.operand_types[old:]),
            attributes=with_segment(self.attributes, 0, len(tokens)),
        )

    def giving(self, token: str) -> GpuOperation:
        """Return the operation made asynchronous, its token so named."""
        return replace(
            self, results=(*self.results, token), result_types=(*self.result_types, TOKEN)
        )

    @property
    def names_stream(self) -> bool:
        """Say whether it is a launch on a stream that the program names: `<%stream : !llvm.ptr>`."""
        match = _SEGMENTS.search(self.attributes) if self.name == "gpu.launch_func" else None
        sizes = match[1].split(", ") if match else []
        return sizes[_STREAM_SEGMENT : _STREAM_SEGMENT + 1] == ["1"]

    def segment(self, index: int, count: int = 1) -> tuple[str, ...]:
        """Return the operands of some of its segments."""
        match = _SEGMENTS.search(self.attributes)
        sizes = [int(size) for size in match[1].split(",")] if match else []
        start = sum(sizes[:index])
        return self.operands[start : start + sum(sizes[index : index + count])]

    def render(self) -> str:
        """Return its line."""
        results = f"{', '.join(self.results)} = " if self.results else ""
        signature = f"({', '.join(self.operand_types)}) -> ({', '.join(self.result_types)})"
        text = f'{results}"{self.name}"({", ".join(self.operands)}){self.attributes} : {signature}'
        return f"{' ' * self.indent}{text} {self.location}".rstrip()


def with_segment(attributes: str, index: int, count: int) -> str:
    """Return the attributes with another size of one operand segment, where they have segments."""
    match = _SEGMENTS.search(attributes)
    if match is None:
        return attributes
    segments = match[1].split(", ")
    segments[index] = str(count)
    return f"{attributes[: match.start(1)]}{', '.join(segments)}{attributes[match.end(1) :]}"


def parse_gpu_operation(line: str) -> GpuOperation | None:
    """Return the parts of an operation that may take and give tokens, None for another line."""
    operation = parse_operation(line) if _NEEDLE.search(line) else None
    if operation is None:
        return None
    attributes, operand_types, result_types, location = split_signature(operation.rest)
    return GpuOperation(
        indent=operation.indent,
        name=operation.name,
        results=tuple(MLIR.split_list(operation.results)),
        result_types=tuple(result_types),
        operands=operation.operands,
        operand_types=tuple(operand_types),
        attributes=attributes,
        location=location,
    )
