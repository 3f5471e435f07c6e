"""The registers of a wave of 64 or 32 lanes, and the operands that name them."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np

LANES = 64
WORD = 0xFFFFFFFF
Vector = np.ndarray[Any, np.dtype[Any]]
FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_REGISTERS = re.compile(r"([vs])\[(\d+):(\d+)\]|([vs])(\d+)(?:\.([lh]))?")
_MASKS = {"vcc": "vcc", "exec": "exec", "vcc_lo": "vcc", "exec_lo": "exec"}
_LANE_BITS = np.left_shift(np.uint64(1), np.arange(LANES, dtype=np.uint64))


class Register(NamedTuple):
    """The register operand of an instruction: its first register, and the half, if only one is used."""

    file: str
    first: int
    half: str
    are_several: bool


@cache
def find_register(text: str) -> Register | None:
    """Return the registers that an operand names; None if it is not a register."""
    match = _REGISTERS.fullmatch(text)
    if match is None:
        return None
    first = int(match[2] or match[5])
    return Register(match[1] or match[4], first, match[6] or "", bool(match[1]))


def register_of(text: str) -> Register:
    """Return the registers that an operand names."""
    found = find_register(text)
    assert found is not None, text
    return found


@cache
def lanes_of(mask: int) -> Vector:
    """Return the lanes of a mask as a read-only array."""
    return cast("Vector", (np.uint64(mask) & _LANE_BITS) != 0)


@dataclass(slots=True, kw_only=True)
class Registers:
    """The register files of a wave; EXEC is the mask of active lanes. In wave32, the upper lanes are never active."""

    exec: int
    lanes: int = LANES
    v: Vector = field(default_factory=lambda: np.full((256, LANES), 0xDEADBEEF, np.uint32))
    s: list[int] = field(default_factory=lambda: [0xDEADBEEF] * 128)
    vcc: int = 0
    scc: int = 0

    def scalar(self, text: str, bits: int = 32) -> int:
        """Return the value of a scalar operand."""
        if text in _MASKS:
            return int(getattr(self, _MASKS[text]))
        register = find_register(text)
        if register is None and re.fullmatch(r"-?\d+\.\d+", text):
            form = {16: "<e", 32: "<f", 64: "<d"}[bits]
            return int.from_bytes(struct.pack(form, float(text)), "little")
        if register is None:
            return int(text, 0) & ((1 << bits) - 1)
        first = register.first
        return self.s[first] | (self.s[first + 1] << 32 if bits == LANES else 0)

    def set_scalar(self, text: str, value: int, bits: int = 32) -> None:
        """Write a scalar register, or a register pair."""
        if text in _MASKS:
            setattr(self, _MASKS[text], value & ((1 << self.lanes) - 1))
            return
        if text == "null":
            return
        first = register_of(text).first
        self.s[first] = value & WORD
        if bits == LANES:
            self.s[first + 1] = value >> 32 & WORD

    def words(self, text: str, bits: int = 32) -> Vector:
        """Return the value of an operand in every lane, as an unsigned integer."""
        register = find_register(text)
        if register and register.file == "v":
            first = register.first
            low = self.v[first].astype(np.uint64)
            if bits <= 32:
                return cast("Vector", low >> np.uint64(16 * (register.half == "h")) & ones(bits))
            return cast("Vector", low | self.v[first + 1].astype(np.uint64) << np.uint64(32))
        return np.full(LANES, self.scalar(text, bits), np.uint64)

    def signed(self, text: str, bits: int = 32) -> Vector:
        """Return the value of an operand in every lane, as a signed integer."""
        return as_signed(self.words(text, bits), bits)

    def floats(self, text: str, kind: str) -> Vector:
        """Return the value of an operand in every lane, as a floating-point number."""
        bits, real = int(kind[1:]), FLOATS[kind]
        is_negative, text = text.startswith("-v"), text.removeprefix("-") if "v" in text else text
        magnitude = text.strip("|")
        if re.fullmatch(r"-?\d+\.\d+", magnitude):
            value = np.full(LANES, float(magnitude), real)
        else:
            raw = self.words(magnitude, bits)
            if bits == LANES and magnitude.startswith("0x"):
                raw = raw << np.uint64(32)
            value = raw.astype(f"u{bits // 8}").view(real)
        value = np.abs(value) if magnitude != text else value
        return -value if is_negative else value

    def set_lanes(self, text: str, value: Vector, bits: int = 32) -> None:
        """Write a vector register, or a register pair, in the active lanes."""
        _, first, half, _ = register_of(text)
        active = self.active_lanes()
        raw = value.astype(np.uint64)
        if half:
            raw = self._with_half(first, raw, is_high=half == "h")
        # The conversion keeps the lower 32 of 64 bits.
        np.copyto(self.v[first], raw.astype(np.uint32), where=active)
        if bits == LANES:
            np.copyto(self.v[first + 1], (raw >> np.uint64(32)).astype(np.uint32), where=active)

    def _with_half(self, register: int, value: Vector, *, is_high: bool) -> Vector:
        """Return a register with one of its 16-bit halves replaced."""
        shift, old = np.uint64(16 * is_high), self.v[register].astype(np.uint64)
        kept = old & ~(ones(16) << shift)
        return cast("Vector", kept | (value & ones(16)) << shift)

    def set_floats(self, text: str, value: Vector, kind: str) -> None:
        """Write a floating-point number in every active lane."""
        bits = int(kind[1:])
        self.set_lanes(text, value.astype(FLOATS[kind]).view(f"u{bits // 8}"), bits)

    def bytes_of(self, text: str, size: int) -> Vector:
        """Return `size` bytes per active lane, read from consecutive registers."""
        first = register_of(text).first
        words = self.v[first : first + (size + 3) // 4, self.active_lanes()]
        return np.ascontiguousarray(words.T).view(np.uint8)[:, :size]

    def set_bytes(self, text: str, rows: Vector, *, keeps: bool = False) -> None:
        """Write a row of bytes per active lane; with `keeps`, the other bytes of the registers are preserved."""
        first, active = register_of(text).first, self.active_lanes()
        count, size = (rows.shape[1] + 3) // 4, rows.shape[1]
        filled = (
            self.bytes_of(text, 4 * count) if keeps else np.zeros((len(rows), 4 * count), np.uint8)
        )
        filled[:, :size] = rows
        self.v[first : first + count, active] = np.ascontiguousarray(filled).view("<u4").T

    def active_lanes(self) -> Vector:
        """Return which lanes are active."""
        return lanes_of(self.exec)

    def mask_of(self, text: str) -> Vector:
        """Return the lanes of a mask in scalar registers: a pair, or one register in wave32."""
        return lanes_of(self.scalar(text, self.lanes))

    def set_mask(self, text: str, value: Vector) -> None:
        """Write a mask of the active lanes with nonzero values."""
        found = int(np.bitwise_or.reduce(np.where(value & self.active_lanes(), _LANE_BITS, 0)))
        self.set_scalar(text, found, self.lanes)


def ones(bits: int) -> np.uint64:
    """Return an integer with the lowest `bits` bits set."""
    return np.uint64((1 << bits) - 1)


def as_signed(value: Vector, bits: int) -> Vector:
    """Return integers of `bits` bits as signed ones."""
    spare = np.uint64(LANES - bits)
    return (value << spare).view(np.int64) >> np.int64(LANES - bits)
