"""Instructions that a loop over lanes does not clone, or that LLVM lowers to calls."""

from __future__ import annotations

from mlir_offload.toolchain.llvmc.builder import Builder
from mlir_offload.toolchain.llvmc.code import Opcode, RmwUpdate
from mlir_offload.toolchain.llvmc.ir import Instruction, Value

_NATIVE = frozenset(
    [
        "fabs", "fma", "fmuladd", "sqrt", "minnum", "maxnum", "minimum", "maximum", "smin", "smax", "umin",
        "umax", "abs", "ctpop", "copysign", "floor", "ceil", "trunc", "rint", "nearbyint", "roundeven",
        "bswap", "bitreverse", "fshl", "fshr",
    ]
)  # fmt: skip


def calls_libm(instruction: Instruction) -> bool:
    """Return whether an instruction calls a library function for which there is no vector instruction."""
    if instruction.opcode != Opcode.CALL:
        return False
    library, *names = instruction.callee.split(".")
    return library != "mo" and (library != "llvm" or names[0] not in _NATIVE)


# Exchange, minimum and maximum stay atomic.
_UPDATES: dict[int, Opcode] = {
    RmwUpdate.ADD: Opcode.ADD,
    RmwUpdate.SUB: Opcode.SUB,
    RmwUpdate.AND: Opcode.AND,
    RmwUpdate.OR: Opcode.OR,
    RmwUpdate.XOR: Opcode.XOR,
    RmwUpdate.FADD: Opcode.FADD,
    RmwUpdate.FSUB: Opcode.FSUB,
}


def plain_update(b: Builder, update: Instruction, address: Value, operand: Value) -> Value | None:
    """Append an atomic update of workgroup memory as a load, an operation and a store; return the old value.

    The update need not be atomic, because one worker thread executes the block. Return None if it stays atomic.
    """
    operation = _UPDATES.get(update.update)
    if operation is None:
        return None
    old = b.load(update.type, address, align=update.alignment)
    b.store(b.binary(operation, old, operand), address, align=update.alignment)
    return old
