"""The device modules of a program, their kernels, and the GPU operations of the host.

A program can also launch kernels that another file defines, for example in CUDA C++. It declares them
with `gpu.kernel` in a `gpu.module`: `llvm.func @scale(!llvm.ptr, f32) attributes {gpu.kernel}`.
MLIR checks neither the number nor the types of the arguments of such a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.target import Kind
from mlir_offload.translate.kind_lowering import TargetAttribute
from mlir_offload.translate.mlir.module import Locations, parse_module
from mlir_offload.translate.mlir.operation import Operation, Value, function_type
from mlir_offload.translate.mlir.syntax import (
    Attribute,
    integer_array,
    parse_symbol,
    quoted,
    render_symbol,
    tokens,
)

_KERNEL_MARKS = ("gpu.kernel", "nvvm.kernel", "rocdl.kernel")
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
_DYNAMIC_SEGMENT, _ARGUMENT_SEGMENT, _STREAM_SEGMENT = 10, 11, 12
# The calling convention, which marks kernels in LLVM IR from clang or from an MLIR pass.
CONVENTION = "CConv"
_KERNEL_CONVENTIONS = frozenset(
    f"#llvm.cconv<{name}_kernelcc>" for name in ("ptx", "amdgpu", "spir")
)
# A property of gpu.func since LLVM 23. Older releases use the attribute gpu.kernel.
_KERNEL_PROPERTY = "kernel"
_FUNCTIONS = frozenset({"gpu.func", "func.func", "llvm.func"})
# The third byte is 0xEF, decoded as latin-1 or with surrogateescape.
_BYTECODE_MAGIC = ("ML\u00efR", "ML\udcefR")

# Operands of launches that need no check.
_USUAL = frozenset({"i1", "i8", "i16", "i32", "i64", "index", "f16", "f32", "f64", "!llvm.ptr"})

KernelKey = tuple[str, str]
"""The names of a gpu.module and of a kernel in it, in the outlined program."""
POINTER_HINT = (
    "pass its pointer, as C++ takes it: memref.extract_aligned_pointer_as_index, "
    "arith.index_cast to i64, llvm.inttoptr"
)


def place_of_kernel(text: str, symbol: str) -> str:
    """Return `file:line:column` of a kernel in a device module, an empty string if it is unknown."""
    module = parse_module(text)
    functions = (one for one in module.operation.walk_inside() if one.name in _FUNCTIONS)
    found = next((one for one in functions if one.symbol == symbol), None)
    return Locations(module.aliases).of(found) if found else ""


class Kernel(Struct, frozen=True):
    """A kernel: its `name` in the program, its `symbol` in images and offload entries."""

    name: str
    symbol: str


class GpuModule(Struct, frozen=True):
    """A `gpu.module` as a separate program for mlir-opt: the only operation in a `builtin.module`.

    `needs` are the properties that determine its passes: `subgroup_reduce` if it has reductions over
    a subgroup, `redux` if all of them can be one instruction of sm_80 and later, `bf16`, `nvgpu`
    and `matrix` if it uses these. `texts` are the
    programs in the other requested forms, by the name of the form. `targets` are the target attributes
    in the program. `leaves` are the device kinds for which another variant of the module is used.
    """

    name: str
    kernels: tuple[Kernel, ...]
    text: str
    needs: frozenset[str]
    texts: tuple[tuple[str, str], ...] = ()
    targets: tuple[TargetAttribute, ...] = ()
    leaves: frozenset[Kind] = frozenset()


def kernel_names(module: Operation) -> tuple[str, ...]:
    """Return the names of the kernels that a `gpu.module` defines, in order."""
    return tuple(
        operation.symbol
        for operation in module.operations
        if operation.name in _FUNCTIONS
        and is_kernel(operation)
        and not is_declared_kernel(operation)
    )


def is_kernel(operation: Operation) -> bool:
    """Return whether a function is marked as a kernel, before or after lowering.

    A function of the LLVM dialect that returns a value is a device function, even if it is marked.
    """
    is_lowered = operation.attribute("function_type").startswith("!llvm.func")
    return _has_kernel_mark(operation) and not (is_lowered and function_type(operation)[1])


def is_declared_kernel(operation: Operation) -> bool:
    """Return whether an operation declares a kernel. A declaration with a result is rejected later."""
    is_declared = operation.name in _FUNCTIONS and operation.is_declaration
    return is_declared and _has_kernel_mark(operation)


def _has_kernel_mark(operation: Operation) -> bool:
    is_marked = operation.name == "gpu.func" and operation.has(_KERNEL_PROPERTY)
    is_called_as_one = operation.attribute(CONVENTION) in _KERNEL_CONVENTIONS
    return is_marked or is_called_as_one or any(map(operation.has, _KERNEL_MARKS))


def named_modules(names: Iterable[str], source_text: str) -> frozenset[str]:
    """Return the names of the `gpu.module`s that the source itself names.

    Outlining generates the other names, from the function that contains the `gpu.launch`. In bytecode
    strings are NUL-terminated.
    """
    if source_text.startswith(_BYTECODE_MAGIC):
        return frozenset(name for name in names if f"{name}\0" in source_text)
    defined = _defined_modules(source_text)
    return frozenset(name for name in names if name in defined)


def _defined_modules(source: str) -> frozenset[str]:
    """Return the names of the `gpu.module`s in the text of a program."""
    if "gpu.module" not in source:
        return frozenset()
    found = tokens(source)
    defined = {
        parse_symbol(name)
        for word, name in pairwise(found)
        if word == "gpu.module" and name.startswith("@")
    }
    if '"gpu.module"' in found:
        # In generic form without properties, the name follows the region.
        defined.update(
            Attribute(value).string
            for name, equals, value in zip(found, found[1:], found[2:], strict=False)
            if name == "sym_name" and equals == "="
        )
    return frozenset(defined)


def rename_kernels(module: Operation, symbols: Mapping[str, str]) -> None:
    """Rename the kernels of a `gpu.module` to their symbols.

    Declarations of kernels are removed; only the host uses them.
    """
    kept = [operation for operation in module.operations if not is_declared_kernel(operation)]
    module.operations[:] = kept
    for operation in kept:
        symbol = symbols.get(operation.symbol) if operation.name in _FUNCTIONS else None
        if symbol is not None and symbol != operation.symbol:
            operation.set_attribute("sym_name", quoted(symbol))


def check_launches(
    operation: Operation, kernels: Mapping[KernelKey, str], locations: Locations
) -> None:
    """Raise SourceError for a launch of an unknown kernel, or with a stream of the wrong type.

    mlir-opt 22 accepts such launches. They would fail at run time, or use the wrong stream.
    """
    for launch, launched in launches_in(operation):
        if launched not in kernels:
            module, kernel = map(render_symbol, launched)
            msg = f"launch of kernel {module}::{kernel}, which does not exist"
            hint = "define it in that gpu.module as a kernel, which returns nothing, or declare it there"
            raise SourceError(msg, hint=hint, location=locations.of(launch))
        if names_stream(launch) and launch.operand_types[-1] != POINTER:
            msg = f"the stream of a launch is {launch.operand_types[-1]}, which has no lowering"
            hint = f"pass the cudaStream_t or hipStream_t as {POINTER}"
            raise SourceError(msg, hint=hint, location=locations.of(launch))


def launches_in(operation: Operation) -> Iterator[tuple[Operation, KernelKey]]:
    """Yield each launch in an operation, with the kernel that it launches."""
    for inner in operation.walk_inside():
        if inner.name == "gpu.launch_func":
            module, kernel = inner.attribute("kernel").symbols
            yield inner, (module, kernel)


def rename_launches(
    operation: Operation, modules: Mapping[str, str], kernels: Mapping[KernelKey, str]
) -> None:
    """Replace the module and kernel names of all launches in a host operation by their symbols."""
    for launch, key in launches_in(operation):
        module, kernel = key
        symbols = modules.get(module, module), kernels.get(key, kernel)
        launch.set_attribute("kernel", Attribute("::".join(map(render_symbol, symbols))))


class DeclaredKernel(Struct, frozen=True):
    """A kernel that another file defines, with its parameter types in the spelling of launches."""

    module: str
    name: str
    types: tuple[str, ...]


def read_declared(module: Operation, locations: Locations) -> tuple[DeclaredKernel, ...]:
    """Return the kernels that a `gpu.module` declares.

    Raises SourceError for a parameter type without a counterpart in C++, such as a memref, which
    becomes several arguments.
    """
    return tuple(
        _read_declared(module.symbol, operation, locations)
        for operation in module.operations
        if is_declared_kernel(operation)
    )


def check_declared_launches(
    operation: Operation, declared: Mapping[KernelKey, DeclaredKernel], locations: Locations
) -> None:
    """Raise SourceError for a launch whose arguments do not match the declared kernel."""
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
    """Return the type that the host passes: i64 for index, `ptr` for every pointer."""
    kind = kind.removeprefix("!llvm.")
    if kind == "index":
        return "i64"
    return "ptr" if Attribute(kind).name == "ptr" else kind


def is_gpu_operation(operation: Operation) -> bool:
    """Return whether an operation supports async tokens as operands and results."""
    return operation.name in _NAMES or operation.name.startswith(_PREFIXES)


def dependencies(operation: Operation) -> list[Value]:
    """Return the async dependencies of an operation: its operands that are tokens."""
    return [value for value in operation.operands if value.type == TOKEN]


def is_async(operation: Operation) -> bool:
    """Return whether an operation returns a token."""
    return operation.result_types[-1:] == [TOKEN]


def is_shared_alloc(operation: Operation) -> bool:
    """Return whether an operation is a gpu.alloc with `host_shared`."""
    return operation.name == "gpu.alloc" and operation.has("hostShared")


def names_stream(operation: Operation) -> bool:
    """Return whether an operation is a launch with a stream: `<%stream : !llvm.ptr>`."""
    if operation.name != "gpu.launch_func":
        return False
    return operation.attribute(_SEGMENTS).integers[_STREAM_SEGMENT : _STREAM_SEGMENT + 1] == (1,)


def segment(operation: Operation, index: int, count: int = 1) -> tuple[Value, ...]:
    """Return the operands of `count` operand segments from `index` on."""
    sizes = operation.attribute(_SEGMENTS).integers
    start = sum(sizes[:index])
    return operation.operands[start : start + sum(sizes[index : index + count])]


def grid_and_block(launch: Operation) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Return the grid and the block dimensions of a `gpu.launch_func`."""
    return segment(launch, _GRID_SEGMENT, 3), segment(launch, _BLOCK_SEGMENT, 3)


def arguments_of(launch: Operation) -> tuple[Value, ...]:
    """Return the arguments of a `gpu.launch_func`."""
    return segment(launch, _ARGUMENT_SEGMENT)


def argument_types(launch: Operation) -> list[str]:
    """Return the types of the arguments of a `gpu.launch_func`."""
    return [value.type for value in arguments_of(launch)]


def has_unusual_operands(operation: Operation) -> bool:
    """Return whether a kernel or a launch in a top-level operation has operands that need a check."""
    if operation.name == "gpu.module":
        kernels = (one for one in operation.operations if is_kernel(one))
        kinds = {kind for one in kernels for kind in function_type(one)[0]}
    else:
        launches = [launch for launch, _ in launches_in(operation)]
        if any(grid_and_block(one)[0][0].type == "i32" for one in launches):
            return True
        kinds = {kind for one in launches for kind in argument_types(one)}
    return not all(kind in _USUAL or _is_usual_memref(kind) for kind in kinds)


def _is_usual_memref(kind: str) -> bool:
    return kind.startswith("memref<") and kind.rpartition("x")[2].removesuffix(">") in _USUAL


def replace_arguments(launch: Operation, values: Sequence[Value]) -> None:
    """Replace the arguments of a `gpu.launch_func`."""
    sizes = launch.attribute(_SEGMENTS).integers
    start = sum(sizes[:_ARGUMENT_SEGMENT])
    stop = start + sizes[_ARGUMENT_SEGMENT]
    given = launch.operands
    launch.operands = (*given[:start], *values, *given[stop:])
    resize_segment(launch, _ARGUMENT_SEGMENT, len(values))


def replace_dimensions(launch: Operation, made: Callable[[Value], Value]) -> None:
    """Replace each size of the grid, the block and the cluster of a `gpu.launch_func`."""
    sizes = launch.attribute(_SEGMENTS).integers
    start = sizes[0]
    stop = start + sum(sizes[_GRID_SEGMENT:_DYNAMIC_SEGMENT])
    given = launch.operands
    launch.operands = (*given[:start], *map(made, given[start:stop]), *given[stop:])


def resize_segment(operation: Operation, index: int, count: int) -> None:
    """Update the size of an operand segment, if the operation has segments."""
    sizes = list(operation.attribute(_SEGMENTS).integers)
    if sizes:
        sizes[index] = count
        operation.set_attribute(_SEGMENTS, integer_array("i32", sizes))


def depend_on(operation: Operation, tokens: Sequence[Value]) -> None:
    """Replace the async dependencies of an operation."""
    old = len(dependencies(operation))
    operation.operands = (*tokens, *operation.operands[old:])
    resize_segment(operation, 0, len(tokens))


def give_token(operation: Operation, name: str) -> Value:
    """Make an operation return a token with this name."""
    others = f"{operation.result_text}, " if operation.result_text else ""
    operation.result_text = f"{others}{name}"
    operation.result_types.append(TOKEN)
    return Value(name, TOKEN)
