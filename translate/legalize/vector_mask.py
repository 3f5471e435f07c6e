"""Replace vector.mask by operations with the mask as an operand, and by selections.

convert-vector-to-llvm lowers a masked reduction, but begins a maximum or minimum with the subnormal number next to zero.
It does not lower masked transfers, for which lower-vector-mask supports only func.func.
"""

from __future__ import annotations

from collections.abc import Callable

from mlir_offload.translate.legalize.arith import select
from mlir_offload.translate.legalize.elements import element_of, number
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import integer_array, integer_width

_SEGMENTS = "operandSegmentSizes"
_TRANSFERS = frozenset({"vector.transfer_read", "vector.transfer_write"})
_REDUCTION = "vector.reduction"
_INDEX, _INDEX_BITS = "index", 64
# -0, 1, infinity and NaN.
_FLOATS = {
    "f16": (0x8000, 0x3C00, 0x7C00, 0x7E00),
    "bf16": (0x8000, 0x3F80, 0x7F80, 0x7FC0),
    "f32": (0x80000000, 0x3F800000, 0x7F800000, 0x7FC00000),
    "f64": (0x8000 << 48, 0x3FF0 << 48, 0x7FF0 << 48, 0x7FF8 << 48),
}
_FLOAT_KINDS: dict[str, Callable[[int, int, int, int], int]] = {
    "add": lambda zero, _one, _infinity, _nan: zero,
    "mul": lambda _zero, one, _infinity, _nan: one,
    "minnumf": lambda _zero, _one, _infinity, nan: nan,
    "maxnumf": lambda _zero, _one, _infinity, nan: nan,
    "minimumf": lambda _zero, _one, infinity, _nan: infinity,
    "maximumf": lambda zero, _one, infinity, _nan: zero | infinity,
}
_INTEGER_KINDS: dict[str, Callable[[int], int]] = {
    "add": lambda _bits: 0,
    "mul": lambda _bits: 1,
    "and": lambda _bits: -1,
    "or": lambda _bits: 0,
    "xor": lambda _bits: 0,
    "minui": lambda _bits: -1,
    "maxui": lambda _bits: 0,
    "minsi": lambda bits: (1 << (bits - 1)) - 1,
    "maxsi": lambda bits: -(1 << (bits - 1)),
}


def mask(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Replace vector.mask of a reduction or a transfer; other operations keep it, and are rejected later."""
    given, *passed = operation.operands
    *inner, end = operation.regions[0].blocks[0].operations
    masked = [(one, _masked(one, given)) for one in inner]
    # The operations around it were created for the elements in memory.
    if passed or sum(other is not None for _, other in masked) != 1:
        rewriter.insert(operation)
        return
    for one, other in masked:
        if one.name == _REDUCTION and other is not None:
            value, *start = one.operands
            neutral = number(rewriter, _neutral(one), value.type)
            one.operands = [select(rewriter, given, value, neutral), *start]
        rewriter.insert(other or one)
    rewriter.replace(operation, end.operands)


def _masked(operation: Operation, given: Value) -> Operation | None:
    """Return the operation with a mask, None if it has one already or is not supported."""
    if operation.name == _REDUCTION and _neutral(operation):
        return operation
    sizes = operation.attribute(_SEGMENTS).integers if operation.name in _TRANSFERS else ()
    if not sizes or sizes[-1]:
        return None
    made = operation.copy_without_regions()
    made.operands = [*operation.operands, given]
    made.set_attribute(_SEGMENTS, integer_array("i32", (*sizes[:-1], 1)))
    return made


def _neutral(reduction: Operation) -> str:
    """Return the number that does not change the result of a reduction, "" for an unknown type."""
    kind = reduction.attribute("kind").body
    element = element_of(reduction.operand_types[0])
    if element in _FLOATS and kind in _FLOAT_KINDS:
        bits = _FLOAT_KINDS[kind](*_FLOATS[element])
        return f"0x{bits:0{len(hex(_FLOATS[element][0])) - 2}X}"
    width = _INDEX_BITS if element == _INDEX else integer_width(element)
    if not width or kind not in _INTEGER_KINDS:
        return ""
    value = _INTEGER_KINDS[kind](width)
    return str(bool(value)).lower() if width == 1 else str(value)
