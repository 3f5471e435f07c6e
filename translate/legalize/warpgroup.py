"""Correct the rows of nvgpu.warpgroup.mma.store after convert-nvgpu-to-nvvm.

An accumulator of more than 64 rows is a structure of structures, with the registers of 64 rows each. For the second and
later ones, the pass adds the number of preceding registers to the row instead of 64 each
(NVGPUWarpgroupMmaStoreOpLowering of mlir/lib/Conversion/NVGPUToNVVM/NVGPUToNVVM.cpp), which is correct only for 64
registers.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.mlir.syntax import Attribute, split_types

# The rows of one warpgroup multiplication.
ROWS = 64
_THREAD = "nvvm.read.ptx.sreg.tid.x"
_STRUCTURE, _INNER = "!llvm.struct", "struct<("


def correct_stored_rows(module: Operation) -> None:
    """Correct the rows of accumulator stores in a `gpu.module`."""
    rewriter = Rewriter("%mo_row_")

    def correct(addition: Operation, rows: int) -> None:
        first, _ = addition.operands
        added = rewriter.value("llvm.mlir.constant", (), "i32", {"value": f"{rows} : i32"})
        addition.operands = (first, added)
        rewriter.insert(addition)

    rewriter.rewrite_chosen(module, dict(_wrong_additions(module)), correct)


def _wrong_additions(module: Operation) -> Iterator[tuple[int, int]]:
    """Yield the `id` of each wrong addition to a row, and the correct number of rows.

    All operations of a lowered store have its location, including the thread ID.
    """
    constants: dict[str, int] = {}
    part, wrong, location, has_thread = 0, 0, "", False
    for operation in module.walk_inside():
        match operation.name:
            case "llvm.extractvalue" if found := _part(operation):
                part, wrong = found
                location, has_thread = operation.location, False
            case "llvm.mlir.constant":
                constants[operation.result_text] = operation.attribute("value").integer or 0
            case name if name == _THREAD:
                has_thread = operation.location == location
            case "llvm.add" if wrong and has_thread and operation.location == location:
                if constants.get(operation.operand_names[1]) == wrong:
                    yield id(operation), part * ROWS
                    wrong = 0


def _part(operation: Operation) -> tuple[int, int] | None:
    """Return the index of the extracted part of an accumulator and the wrong row offset, None for other values."""
    kind = Attribute(operation.operand_types[0])
    position = operation.attribute("position").integers
    parts = split_types(kind.body) if kind.name == _STRUCTURE else []
    if len(position) != 1 or not parts[1:] or not parts[0].startswith(_INNER):
        return None
    registers = len(split_types(Attribute(parts[0]).body))
    return position[0], position[0] * registers
