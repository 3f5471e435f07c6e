"""Enums of LLVM's C API, with the members that the passes use."""

from __future__ import annotations

from enum import IntEnum


class Opcode(IntEnum):
    """LLVMOpcode of llvm-c/Core.h."""

    RET = 1
    BR = 2
    UNREACHABLE = 7
    ADD = 8
    FADD = 9
    SUB = 10
    FSUB = 11
    MUL = 12
    UDIV = 15
    UREM = 18
    SHL = 20
    LSHR = 21
    AND = 23
    OR = 24
    XOR = 25
    ALLOCA = 26
    LOAD = 27
    STORE = 28
    GEP = 29
    TRUNC = 30
    ZEXT = 31
    SEXT = 32
    BITCAST = 41
    ICMP = 42
    PHI = 44
    CALL = 45
    SELECT = 46
    EXTRACT_VALUE = 53
    FENCE = 55
    CMPXCHG = 56
    RMW = 57
    FREEZE = 68


class TypeKind(IntEnum):
    """LLVMTypeKind of llvm-c/Core.h."""

    VOID = 0
    INTEGER = 8
    STRUCT = 10
    ARRAY = 11
    POINTER = 12
    VECTOR = 13
    METADATA = 14
    TOKEN = 16


class Predicate(IntEnum):
    """LLVMIntPredicate of llvm-c/Core.h."""

    EQ = 32
    NE = 33
    UGT = 34
    UGE = 35
    ULT = 36
    ULE = 37
    SGT = 38
    SGE = 39
    SLT = 40
    SLE = 41


class RmwUpdate(IntEnum):
    """LLVMAtomicRMWBinOp of llvm-c/Core.h."""

    EXCHANGE = 0
    ADD = 1
    SUB = 2
    AND = 3
    OR = 5
    XOR = 6
    FADD = 11
    FSUB = 12
