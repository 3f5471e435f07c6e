"""Legalize operations on memory."""

from __future__ import annotations

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.legalize.arith import binary, convert
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import has_layout, parse_shaped

_FREE = "free"
# arith::AtomicRMWKind.
_EXTREMA = {3: "maximumf", 6: "minimumf"}
_INTEGERS = {"f16": "i16", "bf16": "i16", "f32": "i32", "f64": "i64"}


def release(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Cast the buffer of memref.dealloc to the default memory space, and declare `free`.

    The passes call `free` with a pointer of another space, and LLVM 19 declares it outside of the gpu.module.
    """
    (buffer,) = operation.operands
    memref = parse_shaped(buffer.type, "memref")
    rewriter.add_global(_FREE, f"llvm.func @{_FREE}(!llvm.ptr)", rewriter.location)
    space = memref.parameters[-1] if memref and memref.parameters else ""
    if space and not space.startswith(("strided", "affine_map", "#map")):
        kind = f"{buffer.type.removesuffix(f', {space}>')}>"
        buffer = rewriter.value("memref.memory_space_cast", (buffer,), kind)
    rewriter.create("memref.dealloc", (buffer,))


def atomic_extremum(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Compute the maximum or minimum of memref.atomic_rmw in a loop that exchanges integers.

    LLVM 19 lowers it to an instruction that ignores NaN. The cast between memrefs disappears, because their lowered
    types are equal.
    """
    value, buffer, *indices = operation.operands
    name = _EXTREMA.get(operation.attribute("kind").integer or 0)
    bits, memref = _INTEGERS.get(value.type), parse_shaped(buffer.type, "memref")
    if name is None or bits is None or memref is None:
        rewriter.insert(operation)
        return
    sizes = "".join(f"{'?' if size is None else size}x" for size in memref.sizes)
    kind = f"memref<{', '.join((f'{sizes}{bits}', *memref.parameters))}>"
    cast = rewriter.value("builtin.unrealized_conversion_cast", (buffer,), kind)
    old = Value(rewriter.fresh_name(), bits)
    with rewriter.region((old,)) as region:
        number = convert(rewriter, "bitcast", old, value.type)
        number = binary(rewriter, name, number, value)
        rewriter.create("memref.atomic_yield", (convert(rewriter, "bitcast", number, bits),))
    made = rewriter.create(
        "memref.generic_atomic_rmw", (cast, *indices), (bits,), None, (region,)
    ).results[0]
    rewriter.replace(operation, (convert(rewriter, "bitcast", made, value.type),))


def copy(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Copy a memref with a layout element by element; upstream calls a function of the host for it."""
    shapes = [parse_shaped(kind, "memref") for kind in operation.operand_types]
    if None in shapes:
        msg = "memref.copy of an unranked memref is not supported in a kernel"
        hint = "memref.cast both to memrefs with a rank"
        raise SourceError(msg, hint=hint, location=rewriter.locations.of(operation))
    if not any(map(has_layout, operation.operand_types)):
        rewriter.insert(operation)
        return
    element = next(shape.element for shape in shapes if shape)
    names = [Value(rewriter.fresh_name(), element) for _ in range(2)]
    with rewriter.region(names) as region:
        rewriter.create("linalg.yield", names[:1])
    sizes = {"operandSegmentSizes": "array<i32: 1, 1>"}
    rewriter.create("linalg.copy", operation.operands, (), sizes, [region])


def drop(_rewriter: DeviceRewriter, _operation: Operation) -> None:
    """Drop a hint to the processor."""
