"""Convert the types of the nvgpu dialect of parameters and arguments, as convert-nvgpu-to-nvvm does for values."""

from __future__ import annotations

from mlir_offload.translate.mlir.syntax import (
    Attribute,
    float_width,
    integer_width,
    parse_shaped,
)

_BARRIERS = "!nvgpu.mbarrier.group"
_ACCUMULATOR = "!nvgpu.warpgroup.accumulator"
# A warpgroup multiplies 64 rows at a time. Each of its threads holds a part of the elements in 32-bit registers.
_ROWS = 64
_THREADS = 128
_REGISTER = 32
# The types to which convert-nvgpu-to-nvvm converts. It does not convert parameters and arguments of these types.
_LOWERED = {
    "!nvgpu.tensormap.descriptor": "!llvm.ptr",
    "!nvgpu.mbarrier.token": "i64",
    "!nvgpu.warpgroup.descriptor": "i64",
    "!nvgpu.device.async.token": "i32",
}


def lowered_type(kind: Attribute) -> str:
    """Return the lowered type, an empty string for a type that is not converted."""
    given = kind.parameters
    if kind.name == _ACCUMULATOR:
        return _lowered_accumulator(given["fragmented"])
    if kind.name != _BARRIERS:
        return _LOWERED.get(kind.name, "")
    return f"memref<{given.get('num_barriers', '1')}xi64, {given['memorySpace']}>"


def _lowered_accumulator(fragmented: str) -> str:
    """Return the lowered type of a warpgroup accumulator, an empty string for a shape that MLIR does not lower."""
    shape = parse_shaped(fragmented, "vector")
    width = shape and (integer_width(shape.element) or float_width(shape.element))
    if not (shape and width) or None in shape.sizes:
        return ""
    rows, columns = map(int, filter(None, shape.sizes))
    registers = _ROWS * columns // _THREADS * width // _REGISTER
    part = f"struct<({', '.join([shape.element] * registers)})>"
    return f"!llvm.struct<({', '.join([part] * (rows // _ROWS))})>"
