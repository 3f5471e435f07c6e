"""Report code that upstream MLIR drops silently or lowers wrongly, or that exceeds limits, before it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.target import WorkgroupLimit
from mlir_offload.translate.gpu_module import is_declared_kernel, is_kernel
from mlir_offload.translate.host.launch import MOST_THREADS, element_bytes
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation, function_type
from mlir_offload.translate.mlir.syntax import MLIR, parse_shaped, render_symbol
from mlir_offload.translate.pipelines import Side, UnsupportedOp, load_refusals

_SPACES = frozenset({"3", "3 : i32", "3 : i64", "#gpu.address_space<workgroup>"})
# C17 7.21.6.1: flags, width and precision, length, conversion.
_CONVERSION = pattern(
    r"%(?:%|[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?(?:hh|h|ll|l|j|z|t|L)?[diouxXeEfFgGaAcsp])"
)
_FLOAT_CONVERSIONS = frozenset("eEfFgGaA")
_VARIADIC = "var_callee_type"
# The types that C promotes to double (C17, 6.5.2.2).
_PROMOTED = frozenset({"f16", "bf16", "f32"})
_COMPLEX = "complex<f32>"
# C17, 7.3.
_OF_COMPLEX = pattern(
    r"(?:ca?(?:cos|sin|tan)h?|c(?:exp|log|abs|pow|sqrt|arg|imag|proj|real)|conj)f"
)
_MODULES = frozenset({"gpu.module", "builtin.module"})


def workgroup_bytes(module: Operation) -> dict[str, int]:
    """Return the size of the workgroup memory of each function of a module in bytes."""
    shared = {
        operation.symbol: _shared_bytes(operation.attribute("type"))
        for operation in module.operations
        if operation.name == "memref.global"
    }
    return {
        operation.symbol: _attributed_bytes(operation) + _used_bytes(operation, shared)
        for operation in module.operations
        if operation.name == "gpu.func"
    }


def check_workgroup_memory(
    module: Operation, limits: Sequence[WorkgroupLimit], locations: Locations
) -> None:
    """Raise SourceError for a kernel whose workgroup memory exceeds the limit of a GPU."""
    sizes = workgroup_bytes(module) if limits else {}
    for operation in module.operations:
        size = sizes.get(operation.symbol, 0) if operation.name == "gpu.func" else 0
        limit = next((one for one in limits if size > one.static_bytes), None)
        if limit is not None:
            msg = (
                f"{render_symbol(operation.symbol)} has {size} bytes of workgroup memory, "
                f"and {limit.arch} takes {limit.static_bytes}"
            )
            hint = (
                "use gpu.dynamic_shared_memory, whose size the launch gives"
                if size <= limit.all_bytes
                else f"use smaller arrays, or leave {limit.arch} out of --offload-arch"
            )
            raise SourceError(msg, hint=hint, location=locations.of(operation))


def check_values(module: Operation, locations: Locations) -> None:
    """Raise SourceError for a value that would be wrong.

    These are the arguments of gpu.printf, if they are missing or of the wrong class, and the size of dynamic
    workgroup memory, which the lowering takes for 0.
    """
    for function in module.operations:
        dynamic: set[str] = set()
        for operation in function.walk_inside():
            if operation.name == "gpu.printf":
                _check_format(operation, locations)
            elif operation.name == "gpu.dynamic_shared_memory":
                dynamic.add(operation.result_text)
            elif operation.name == "memref.dim" and operation.operand_names[0] in dynamic:
                msg = "the size of gpu.dynamic_shared_memory is not known in a kernel"
                hint = "pass dynamic_shared_memory_size as a parameter too"
                raise SourceError(msg, hint=hint, location=locations.of(operation))


def check_variadic_calls(host: Iterable[Operation], locations: Locations) -> None:
    """Raise SourceError for a variadic argument of a C function that C reads as a double."""
    functions = list(host)
    defined = {one.symbol for one in functions if one.regions and not one.is_declaration}
    for function in functions:
        for call in function.walk_inside():
            kind = call.attribute(_VARIADIC).body
            if not kind or call.attribute("callee").removeprefix("@") in defined:
                continue
            listed = kind[MLIR.enclosing(kind, len(kind) - 1)[-1] + 1 : -1]
            first = len(MLIR.split_list(listed)) - call.has("callee")
            wrong = next((one for one in call.operand_types[first:] if one in _PROMOTED), "")
            if wrong:
                msg = f"C functions read a variadic argument of type {wrong} as f64"
                hint = "pass f64: arith.extf before the call"
                raise SourceError(msg, hint=hint, location=locations.of(call))


def check_complex_functions(host: Iterable[Operation], locations: Locations) -> None:
    """Raise SourceError for a declared function of C that takes or returns complex<f32>, in other registers than MLIR."""
    for function in host:
        if not function.is_declaration or not _OF_COMPLEX.fullmatch(function.symbol):
            continue
        takes, gives = function_type(function)
        if _COMPLEX in (*takes, *gives):
            msg = f"C passes {_COMPLEX} of {render_symbol(function.symbol)} in one register, and MLIR in two"
            hint = "declare it with vector<2xf32>: vector.from_elements, vector.extract"
            raise SourceError(msg, hint=hint, location=locations.of(function))


def _check_format(operation: Operation, locations: Locations) -> None:
    wanted = list(_conversions(operation.attribute("format").string))
    given = operation.operand_types
    if len(given) < len(wanted):
        msg = f"gpu.printf has {len(given)} values, and its format has {len(wanted)} conversions"
        hint = "pass a value for each conversion; %% prints a percent sign"
        raise SourceError(msg, hint=hint, location=locations.of(operation))
    for conversion, kind in zip(wanted, given, strict=False):
        is_float = kind.startswith(("f", "bf"))
        takes_float, takes_text = conversion in _FLOAT_CONVERSIONS, conversion == "s"
        if is_float != takes_float or (takes_text and not kind.startswith("!llvm.ptr")):
            msg = f"gpu.printf prints a value of type {kind} by '%{conversion}'"
            hint = f"write {'%f' if is_float else '%d'} for it"
            raise SourceError(msg, hint=hint, location=locations.of(operation))


def _conversions(text: str) -> Iterator[str]:
    """Yield the letter of each conversion that takes an argument; a width `*` takes an integer."""
    for match in _CONVERSION.finditer(text):
        if match[0] != "%%":
            yield from "d" * ((match[1] == "*") + (match[2] == "*"))
            yield match[0][-1]


def _attributed_bytes(operation: Operation) -> int:
    count = operation.attribute("workgroup_attributions").integer or 0
    if not count or operation.is_declaration:
        return 0
    first = len(function_type(operation)[0])
    arguments = operation.regions[0].blocks[0].arguments[first : first + count]
    return sum(_shared_bytes(argument.type) for argument in arguments)


def _used_bytes(operation: Operation, shared: Mapping[str, int]) -> int:
    used = {
        inner.attribute("name").symbols[0]
        for inner in operation.walk_inside()
        if inner.name == "memref.get_global"
    }
    return sum(shared.get(name, 0) for name in used)


def _shared_bytes(kind: str) -> int:
    """Return the size of a memref in workgroup memory in bytes, 0 for other memory or an unknown size."""
    memref = parse_shaped(kind, "memref")
    if memref is None or not memref.parameters or memref.parameters[-1] not in _SPACES:
        return 0
    sizes = [size for size in memref.sizes if size is not None]
    return prod(sizes) * element_bytes(memref.element) if len(sizes) == len(memref.sizes) else 0


def check_top_level(operations: Iterable[Operation], locations: Locations) -> None:
    """Raise SourceError for an operation that is not allowed at the top level of a program."""
    for operation in operations:
        fault = _top_level_fault(operation)
        if fault is not None:
            message, hint = fault
            raise SourceError(message, hint=hint, location=locations.of(operation))
        check_nesting(operation, locations)


def _top_level_fault(operation: Operation) -> tuple[str, str] | None:
    """Return the error message and the hint, None if the operation is allowed."""
    match operation.name:
        case "builtin.module" if operation.has("gpu.kernel_module"):
            return (
                "a module with the attribute gpu.kernel_module, as in 2019",
                "write gpu.module, with kernels as gpu.func @name(...) kernel",
            )
        case "builtin.module":
            return (
                "a module inside a module would be dropped by mlir-translate",
                "write the operations into the outer module, or one file for each module",
            )
        case "llvm.func" if is_kernel(operation):
            return (
                f"kernel @{operation.symbol} is outside of a gpu.module",
                "put device functions into a gpu.module and launch with gpu.launch_func",
            )
        case _:
            return None


def check_nesting(operation: Operation, locations: Locations) -> None:
    """Raise SourceError for a module nested in another operation."""
    for inner in operation.walk_inside():
        if inner.name in _MODULES:
            msg = f"{inner.name} inside of {operation.name} is not supported"
            hint = "move it to the top level of the file"
            raise SourceError(msg, location=locations.of(inner), hint=hint)


def check_device_functions(module: Operation, locations: Locations) -> None:
    """Raise SourceError for a kernel with a result, and for a device function that func.func declares.

    convert-gpu-to-nvvm lowers the latter to a call of `_mlir_ciface_<name>`, which is undefined.
    """
    for operation in module.operations:
        if is_kernel(operation) and function_type(operation)[1]:
            msg = f"kernel @{operation.symbol} returns a value"
            hint = "write the value to memory that the kernel gets as a parameter"
            raise SourceError(msg, location=locations.of(operation), hint=hint)
        if (
            operation.name == "func.func"
            and operation.is_declaration
            and not is_declared_kernel(operation)
        ):
            name = operation.symbol
            msg = f"device function @{name} is declared, but not defined"
            hint = f"define it in the gpu.module, or declare it with 'llvm.func @{name}(...)'"
            raise SourceError(msg, location=locations.of(operation), hint=hint)


def check_launch_bounds(module: Operation, locations: Locations, faults: Collection[str]) -> None:
    """Raise SourceError for a block size above all limits, and for a launch bound that a release drops."""
    for operation in module.operations:
        size = operation.known_block_size
        if prod(size) > MOST_THREADS:
            msg = f"a block of @{operation.symbol} has {prod(size)} threads"
            hint = f"launch smaller blocks: the most is {MOST_THREADS} threads"
            raise SourceError(msg, hint=hint, location=locations.of(operation))
        if "waves_per_eu" in faults and operation.has("rocdl.waves_per_eu"):
            msg = f"this release of LLVM drops rocdl.waves_per_eu of @{operation.symbol}"
            hint = "lower with LLVM 22, or leave it out"
            raise SourceError(msg, hint=hint, location=locations.of(operation))


def check_operations(
    operation: Operation, side: Side, locations: Locations, *, dialect: str = ""
) -> None:
    """Raise SourceError if an operation, or one in it, has no lowering.

    `dialect` is the dialect that device code is lowered to.
    """
    refusals = [row for row in load_refusals(side) if row.dialect in {"", dialect}]
    named = {row.operation for row in refusals}
    dialects = tuple(name for name in named if name.endswith("."))
    for inner in (operation, *operation.walk_inside()):
        if side == "host" and inner.name.startswith("nvvm."):
            # The back end of the host would crash.
            msg = f"{inner.name} is not supported in host code"
            hint = "NVVM operations belong into functions of a gpu.module"
            raise SourceError(msg, location=locations.of(inner), hint=hint)
        if inner.name in named or inner.name.startswith(dialects):
            _check_operation(inner, refusals, locations)


def _check_operation(
    operation: Operation, refusals: Iterable[UnsupportedOp], locations: Locations
) -> None:
    refusal = next((row for row in refusals if row.applies(operation)), None)
    if refusal is not None:
        message = refusal.message.replace("{operation}", operation.name)
        raise SourceError(message, hint=refusal.hint, location=locations.of(operation))
