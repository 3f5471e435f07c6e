"""Vector instructions of AMD GPUs, executed for all active lanes of a wave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from support.amd_registers import (
    FLOATS,
    LANES,
    WORD,
    Registers,
    Vector,
    as_signed,
    find_register,
    ones,
)


class Vectors(Registers):
    """A wave that executes vector instructions."""

    def vector(self, name: str, operands: list[str], modifiers: str) -> None:
        """Execute an instruction on its operands; `name` has no encoding suffix."""
        stem, _, kind = name.removeprefix("v_").rpartition("_")
        if stem.startswith("cmp_"):
            self._compare(stem.removeprefix("cmp_"), kind, operands)
        elif stem.startswith("cmpx_"):
            self._compare(stem.removeprefix("cmpx_"), kind, ["exec", *operands])
        elif stem.endswith("_co"):
            self._with_carry(stem, operands)
        elif stem.startswith("cvt_"):
            self._convert(stem.removeprefix("cvt_"), kind, operands)
        elif stem.startswith("pk_") and kind in FLOATS:
            assert not modifiers, modifiers
            for half in (0, 1):
                self._floating(stem[3:], kind, [_half_of(text, half) for text in operands])
        elif kind in FLOATS:
            self._floating(stem, kind, operands)
        else:
            self._integer(stem, kind, operands)

    def _signed_float(self, operand: str) -> Vector:
        """Return the bits of an operand that may have the modifier `-` of a float."""
        bare = operand.removeprefix("-v")
        if bare == operand:
            return self.words(operand)
        return cast("Vector", self.words(f"v{bare}") ^ np.uint64(1 << 31))

    def _compare(self, predicate: str, kind: str, operands: list[str]) -> None:
        read: Callable[[str, Any], Vector]
        if kind in FLOATS:
            a, b = (self.floats(operand, kind) for operand in operands[1:])
        else:
            read = self.words if kind[0] == "u" else self.signed
            a, b = (read(operand, int(kind[1:])) for operand in operands[1:])
        self.set_mask(operands[0], COMPARED[predicate](a, b))

    def _with_carry(self, stem: str, operands: list[str]) -> None:
        a, b = (self.words(operand).astype(np.int64) for operand in operands[2:4])
        carry = self.mask_of(operands[4]).astype(np.int64) if len(operands) > 4 else 0
        if stem.startswith("subrev"):
            a, b = b, a
        result = a + b + carry if stem.startswith("add") else a - b - carry
        self.set_mask(operands[1], (result < 0) | (result > WORD))
        self.set_lanes(operands[0], result & WORD)

    def _convert(self, target: str, kind: str, operands: list[str]) -> None:
        if kind.startswith("ubyte"):
            shift = np.uint64(8 * int(kind[-1]))
            self.set_floats(operands[0], self.words(operands[1]) >> shift & ones(8), target)
            return
        if kind not in FLOATS:
            read = self.words if kind[0] == "u" else self.signed
            self.set_floats(operands[0], read(operands[1], int(kind[1:])), target)
            return
        value = self.floats(operands[1], kind)
        if target in FLOATS:
            self.set_floats(operands[0], value, target)
            return
        low, high = (0, WORD) if target[0] == "u" else (-(1 << 31), (1 << 31) - 1)
        whole = np.clip(np.nan_to_num(np.trunc(value.astype(np.float64))), low, high)
        self.set_lanes(operands[0], whole.astype(np.int64) & WORD)

    def _floating(self, stem: str, kind: str, operands: list[str]) -> None:
        if stem == "ldexp":
            value, by = self.floats(operands[1], kind), self.signed(operands[2])
            self.set_floats(operands[0], np.ldexp(value, by.astype(int)), kind)
            return
        values = [self.floats(operand, kind) for operand in operands[1:]]
        if stem == "fmac":
            values.append(self.floats(operands[0], kind))
        if stem in {"fma", "fmac", "fmamk", "fmaak"}:
            # The product of two f32 values is exact in long double.
            a, b, c = (value.astype(np.longdouble) for value in values)
            result = (a * b + c).astype(FLOATS[kind])
        else:
            result = _ON_FLOATS[stem](*values)
        self.set_floats(operands[0], result, kind)

    def _integer(self, stem: str, kind: str, operands: list[str]) -> None:
        bits = {"24": 32}.get(kind[1:]) or int(kind[1:])
        target, *given = operands
        match stem:
            case "readlane" | "readfirstlane":
                first = (self.exec & -self.exec).bit_length() - 1 if self.exec else 0
                lane = self.scalar(given[1]) % self.lanes if stem == "readlane" else first
                self.set_scalar(target, int(self.words(given[0])[lane]))
            case "cndmask":
                a, b = (self._signed_float(text) for text in given[:2])
                self.set_lanes(target, np.where(self.mask_of(given[2]), b, a))
            case "mbcnt_lo_u32" | "mbcnt_hi_u32":
                self._count_below(target, given, 32 if "hi" in stem else 0)
            case "pk_mov":
                low, high = self.words(given[0], LANES), self.words(given[1], LANES)
                both = (low & np.uint64(WORD)) | (high >> np.uint64(32) << np.uint64(32))
                self.set_lanes(target, both, LANES)
            case "mad_u64" | "mad_i64":
                read = self.words if kind[0] == "u" else self.signed
                product = (read(given[1]) * read(given[2])).astype(np.uint64)
                self.set_lanes(target, product + self.words(given[3], LANES), LANES)
            case _:
                self.set_lanes(target, self._on_integers(stem, kind, bits, given), bits)

    def _on_integers(self, stem: str, kind: str, bits: int, given: list[str]) -> Vector:
        read = self.signed if kind[0] == "i" else self.words
        shifts = {"lshlrev", "lshrrev", "ashrrev"}
        values = [
            self.words(operand) if stem in shifts and not index else read(operand, bits)
            for index, operand in enumerate(given)
        ]
        if kind in {"i24", "u24"}:
            # The factors have 24 bits, the addend has 32.
            values[:2] = [read(operand, 24) for operand in given[:2]]
        return cast("Vector", _ON_INTEGERS[stem](*values).astype(np.uint64) & ones(bits))

    def _count_below(self, target: str, given: list[str], shift: int) -> None:
        bits, start = self.scalar(given[0]), self.words(given[1])
        below = [
            (bits & ((1 << min(max(lane - shift, 0), 32)) - 1)).bit_count() for lane in range(LANES)
        ]
        self.set_lanes(target, start + np.array(below, np.uint64))


def _half_of(text: str, half: int) -> str:
    """Return the register with the low or high half of a pair; a constant is its own half."""
    found = find_register(text)
    return f"{found.file}{found.first + half}" if found and found.are_several else text


def _reversed_bits(value: Vector) -> Vector:
    return np.array([int(f"{int(word):032b}"[::-1], 2) for word in value], np.uint64)


COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "nlt": lambda a, b: ~(a < b),
    "ngt": lambda a, b: ~(a > b),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
}
_ON_FLOATS: dict[str, Callable[..., Vector]] = {
    "add": np.add,
    "sub": np.subtract,
    "exp": lambda a: np.exp2(a.astype(np.float64)),
    "rndne": np.rint,
    "mul": np.multiply,
    "min": np.fmin,
    "max": np.fmax,
    "floor": np.floor,
    "trunc": np.trunc,
}


def _leading_zeros(value: Vector) -> Vector:
    """Return the number of leading zeros of 32-bit words, -1 for 0 (V_FFBH_U32, V_CLZ_I32_U32)."""
    digits = np.frexp(value.astype(np.float64))[1]
    return cast("Vector", np.where(value == 0, -1, 32 - digits).astype(np.int64))


_ON_INTEGERS: dict[str, Callable[..., Vector]] = {
    "mov": lambda a: a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "subrev": lambda a, b: b - a,
    "add3": lambda a, b, c: a + b + c,
    "lshl_add": lambda a, b, c: (a << b) + c,
    "mul_lo": lambda a, b: a * b,
    "mul_hi": lambda a, b: a * b >> np.uint64(32),
    "mul_u32": lambda a, b: a * b,
    "mul_i32": lambda a, b: a * b,
    "mad_u32": lambda a, b, c: a * b + c,
    "mad_i32": lambda a, b, c: a * b + c,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "or3": lambda a, b, c: a | b | c,
    "and_or": lambda a, b, c: (a & b) | c,
    "lshl_or": lambda a, b, c: (a << b) | c,
    "add_lshl": lambda a, b, c: (a + b) << c,
    "not": lambda a: ~a,
    "xor": lambda a, b: a ^ b,
    "xor3": lambda a, b, c: a ^ b ^ c,
    "xad": lambda a, b, c: (a ^ b) + c,
    "min": np.minimum,
    "max": np.maximum,
    "lshlrev": lambda by, a: a << by,
    "lshrrev": lambda by, a: a >> by,
    "ashrrev": lambda by, a: a >> by.astype(np.int64),
    "bfe": lambda a, offset, width: _field(a, int(offset[0]), int(width[0])),
    "bfrev": _reversed_bits,
    "ffbh": _leading_zeros,
    "clz_i32": _leading_zeros,
}


def _field(value: Vector, offset: int, width: int) -> Vector:
    part = (value.astype(np.uint64) >> np.uint64(offset)) & np.uint64((1 << width) - 1)
    return as_signed(part, width) if value.dtype == np.int64 else part
