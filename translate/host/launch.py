"""Launches in host code: check them, rewrite their arguments, and describe the memory that they pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import prod

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import WorkgroupLimit
from mlir_offload.translate.gpu_module import (
    KernelKey,
    argument_types,
    arguments_of,
    launches_in,
    replace_arguments,
    segment,
)
from mlir_offload.translate.host import narrow_check
from mlir_offload.translate.kernel import WIDE, KernelParameters, Parameter, position_of
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import CustomOperation, Operation, Value
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.mlir.syntax import (
    Attribute,
    float_width,
    integer_width,
    parse_shaped,
    render_symbol,
)

_DESCRIBE = "mgpuDescribeMemRef"
_UNRANKED = "memref<*x"
_UNRANKED_ARGUMENT = (
    "a launch gets an unranked memref, whose sizes are in memory of the host, which GPUs do not reach: "
    "memref.cast it to a memref with a rank before the launch"
)
_BYTE, _WORD = 8, 64
# The largest alignment of a number, in bytes.
_MOST_ALIGNED = 16
MOST_THREADS = 1024
_CONSTANTS = frozenset({"arith.constant", "llvm.mlir.constant"})
_BLOCK, _DYNAMIC = 4, 10
_HOST_ALLOCATIONS = frozenset({"memref.alloc", "memref.alloca"})
# Operations that may pass memory to a function that registers it.
_ESCAPES = frozenset({"func.call", "llvm.call", "func.call_indirect", "gpu.host_register"})
_CAST = "builtin.unrealized_conversion_cast"
_ALLOCATIONS = frozenset({"gpu.alloc", "memref.alloc", "memref.alloca"})
_VIEWS = frozenset(
    f"memref.{name}"
    for name in ("cast", "subview", "view", "reinterpret_cast", "collapse_shape", "expand_shape")
)


def describe_launches(functions: Iterable[Operation]) -> list[Operation]:
    """Insert a call for each memref argument before each launch; return the declaration of the function.

    The runtime copies memory that the device cannot access (offload/runtime/launch_memory.c).
    """
    rewriter = Rewriter("%mo_memory_")
    for function in functions:
        if any(True for _ in launches_in(function)):
            for region in function.regions:
                rewriter.rewrite(region, _pattern)
    head = f"llvm.func @{_DESCRIBE}(i32, i32, i64)"
    return [CustomOperation("", head=head)] if rewriter.has_created else []


def _pattern(operation: Operation) -> Callable[[Rewriter, Operation], None] | None:
    return _describe if operation.name == "gpu.launch_func" else None


def _describe(rewriter: Rewriter, launch: Operation) -> None:
    for values in _memrefs(argument_types(launch)):
        names = ", ".join(
            rewriter.value("llvm.mlir.constant", (), kind, {"value": f"{value} : {kind}"}).name
            for value, kind in zip(values, ("i32", "i32", "i64"), strict=True)
        )
        # The custom form: the properties of llvm.call differ between releases.
        rewriter.custom(f"llvm.call @{_DESCRIBE}({names}) : (i32, i32, i64) -> ()")
    rewriter.insert(launch)


def _memrefs(types: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the index of the first parameter, the rank, and the element size in bytes of each memref.

    gpu-to-llvm passes a memref as two pointers, the offset, and a size and a stride per dimension.
    """
    param = 0
    for kind in types:
        memref = parse_shaped(kind, "memref")
        if memref is None:
            param += 2 if kind.startswith(_UNRANKED) else 1
            continue
        rank, size = len(memref.sizes), element_bytes(memref.element)
        if size:
            yield param, rank, size
        param += 3 + 2 * rank


def element_bytes(kind: str) -> int:
    """Return the distance of two elements in memory in bytes, 0 if it is unknown.

    LLVM packs the bits of the elements of a vector: `vector<8xi1>` has one byte. A memref is two pointers, the offset,
    and a size and a stride per dimension.
    """
    if memref := parse_shaped(kind, "memref"):
        return _WORD // _BYTE * (3 + 2 * len(memref.sizes))
    if kind.startswith(_UNRANKED):
        return 2 * _WORD // _BYTE
    if vector := parse_shaped(kind, "vector"):
        *outer, last = (1, *(size or 0 for size in vector.sizes))
        return prod(outer) * _padded(-(-last * _bits(vector.element) // _BYTE))
    if Attribute(kind).name == "complex":
        return 2 * element_bytes(Attribute(kind).body)
    size = -(-_bits(kind) // _BYTE)
    return _padded(size) if size <= _MOST_ALIGNED else -(-size // _MOST_ALIGNED) * _MOST_ALIGNED


def _bits(kind: str) -> int:
    return _WORD if kind == "index" else integer_width(kind) or float_width(kind)


def _padded(size: int) -> int:
    return 1 << (size - 1).bit_length() if size else 0


class SourceWarning(Struct, frozen=True):
    """A warning about a program, with its location."""

    message: str
    location: str


class LaunchCheck(Struct, frozen=True):
    """Checks the launches of host functions. `used` is the static workgroup memory of each kernel in bytes."""

    locations: Locations
    limits: Sequence[WorkgroupLimit] = ()
    used: Mapping[KernelKey, int] = field(default_factory=dict)

    def check(self, operations: Iterable[Operation]) -> None:
        """Raise SourceError for a launch with a constant above a limit."""
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
        """Yield a warning for each launch that passes host memory, directly or in a descriptor."""
        roots: dict[str, str] = {}
        launched: dict[str, Operation] = {}
        escaped: set[str] = set()
        for operation in (one for function in operations for one in function.walk_inside()):
            operands = [roots[name] for name in operation.operand_names if name in roots]
            if operation.name in _HOST_ALLOCATIONS:
                roots[operation.result_text] = operation.result_text
            elif operation.name in _VIEWS and operands:
                roots[operation.result_text] = operands[0]
            elif operation.name == "gpu.launch_func":
                launched |= {root: operation for root in operands if root not in launched}
                if any(kind.startswith(_UNRANKED) for kind in operation.operand_types):
                    yield SourceWarning(_UNRANKED_ARGUMENT, self.locations.of(operation))
            elif operation.name in _ESCAPES:
                escaped.update(operands)
            elif operation.result_text in roots:
                # Sibling regions may have values with the same name.
                del roots[operation.result_text]
        for root, launch in launched.items():
            if root not in escaped:
                text = "a launch gets memory of the host, which GPUs reach only after gpu.host_register"
                yield SourceWarning(text, self.locations.of(launch))


def note_constant(operation: Operation, known: dict[str, int]) -> None:
    """Record the constant that an operation defines, and forget an older value with the same name."""
    number = None
    if operation.name in _CONSTANTS:
        number = operation.attribute("value").integer
    if number is not None:
        known[operation.result_text] = number
    else:
        known.pop(operation.result_text, None)


class ArgumentRewriter(Rewriter):
    """Rewrites launches of kernels that take memrefs in parts."""

    def __init__(
        self,
        kernels: Mapping[KernelKey, KernelParameters],
        narrow: Collection[KernelKey] = (),
    ) -> None:
        """Take the kernels whose launches pass parts of memrefs, and the kernels with 32-bit indices."""
        super().__init__("%mo_argument_")
        self._kernels, self._narrow = kernels, narrow
        self._known = {*kernels, *narrow}

    def rewrite_function(self, function: Operation) -> None:
        """Rewrite the launches in a host operation."""
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
        # The host has only the default memory space.
        own = replace(parameter, descriptor=replace(parameter.descriptor, is_global=False))
        struct = self.value(_CAST, (value,), own.descriptor.struct_type(WIDE))
        return [
            self.value("llvm.extractvalue", (struct,), own.part_type(place), position_of(place))
            for place in own.parts
        ]


def distinct_arguments(host: Iterable[Operation]) -> dict[KernelKey, frozenset[int]]:
    """Return the indices of each kernel's arguments that do not alias others in any of its launches.

    Such memory is allocated in the launching function, and no other argument is a view of it.
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
    """Return the operation that defines each value, None for a name that several values have."""
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
    """Return the name of the allocation that a value is a view of, an empty string if it is unknown."""
    operation = definitions.get(name)
    while operation is not None and operation.name in _VIEWS:
        name = operation.operand_names[0]
        operation = definitions.get(name)
    return name if operation is not None and operation.name in _ALLOCATIONS else ""
