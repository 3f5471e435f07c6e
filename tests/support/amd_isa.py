"""The machine code of kernels for gfx90a and gfx1100, executed from its disassembly, a wave at a time.

AMD Instinct MI200 and RDNA3 Instruction Set Architecture, reference guides; the kernel descriptor is that of the
User Guide for the AMDGPU back end. Names of RDNA3 are read as those of MI200. Known are the instructions that kernels with reductions, shuffles and
rotations consist of; any other one is an error, as are addresses outside of the memory of the kernel.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from support.amd_registers import (
    FLOATS,
    LANES,
    REGISTERS,
    WORD,
    Registers,
    Vector,
    as_signed,
    ones,
)

_LINE = re.compile(r"\s+([a-z]\w+)\s*(.*?)\s*// ([0-9A-F]+):")
_SIZES = {"b32": "dword", "b64": "dwordx2", "b96": "dwordx3", "b128": "dwordx4"}
# What RDNA3 spells otherwise.
_SPELLINGS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"^ds_load_2addr"), lambda _: "ds_read2"),
    (re.compile(r"^ds_store_2addr"), lambda _: "ds_write2"),
    (re.compile(r"^ds_load"), lambda _: "ds_read"),
    (re.compile(r"^ds_store"), lambda _: "ds_write"),
    (
        re.compile(r"^(global_store|flat_store|s_load)_(b\d+)$"),
        lambda match: f"{match[1]}_{_SIZES[match[2]]}",
    ),
    (re.compile(r"(?<=^s_and)_not1"), lambda _: "n2"),
    (re.compile(r"^v_(add|sub|subrev)_nc_"), lambda match: f"v_{match[1]}_"),
    (re.compile(r"^v_(add|sub)_co_ci_"), lambda match: f"v_{match[1]}c_co_"),
)
_WAITS = re.compile(r"s_waitcnt\w*|s_nop|s_clause|s_delay_alu|s_sendmsg|buffer_gl\d_inv")
_BOTH = " :: "


@dataclass(frozen=True, slots=True)
class Code:
    """Instructions by address: name, operands, modifiers, and the address behind."""

    instructions: dict[int, tuple[str, list[str], str, int]]


def parse_code(disassembly: str) -> Code:
    """Read what `llvm-objdump -d` prints."""
    found = [match for line in disassembly.splitlines() if (match := _LINE.match(line))]
    addresses = [int(match[3], 16) for match in found]
    made = {}
    for match, address, behind in zip(found, addresses, [*addresses[1:], 0], strict=True):
        operands, modifiers = _split(match[2])
        if _BOTH in match[2]:
            operands, modifiers = match[2].split(_BOTH), ""
        made[address] = (_spelled(match[1]), operands, modifiers, behind)
    return Code(made)


def _spelled(name: str) -> str:
    for pattern, spelling in _SPELLINGS:
        name = pattern.sub(spelling, name)
    return name


def _split(text: str) -> tuple[list[str], str]:
    parts = [part.strip() for part in re.split(r",(?![^\[(]*[\])])", text)] if text else []
    last, _, modifiers = parts[-1].partition(" ") if parts else ("", "", "")
    return [*parts[:-1], last] if parts else [], modifiers


@dataclass(slots=True)
class Memory:
    """What a kernel may access: regions by the address where they begin."""

    regions: dict[int, bytearray]

    def at(self, address: int, size: int) -> memoryview:
        """Return the bytes at an address."""
        for start, data in self.regions.items():
            if start <= address and address + size <= start + len(data):
                return memoryview(data)[address - start : address - start + size]
        msg = f"access of {size} bytes at {address:#x}"
        raise IndexError(msg)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Where a kernel begins, and what its descriptor asks for."""

    entry: int
    workgroup_bytes: int
    user_registers: int
    properties: int

    @classmethod
    def parse(cls, address: int, descriptor: bytes) -> Kernel:
        """Read a kernel descriptor that lies at an address."""
        workgroup_bytes = struct.unpack_from("<I", descriptor, 0)[0]
        entry = address + struct.unpack_from("<q", descriptor, 16)[0]
        resources, properties = struct.unpack_from("<IH", descriptor, 52)
        return cls(entry, workgroup_bytes, resources >> 1 & 31, properties)


@dataclass(slots=True, kw_only=True)
class Wave(Registers):
    """A wave: its registers, and the program around them."""

    code: Code
    memory: Memory
    shared: bytearray
    at: int

    def run(self) -> Iterator[None]:
        """Execute to the end; gives way at each barrier."""
        while True:
            name, operands, modifiers, behind = self.code.instructions[self.at]
            self.at, before = behind, self.at
            if name == "s_endpgm":
                return
            if name == "s_barrier":
                yield
            elif name.startswith(("s_cbranch", "s_branch")):
                self._branch(name, before, int(operands[0]))
            elif name.startswith("v_dual_"):
                self._execute_both(f"{name} {operands[0]}", operands[1])
            elif not _WAITS.fullmatch(name):
                self._execute(name, operands, modifiers)

    def _branch(self, name: str, before: int, offset: int) -> None:
        taken = {
            "s_branch": True,
            "s_cbranch_execz": not self.exec,
            "s_cbranch_execnz": bool(self.exec),
            "s_cbranch_scc0": not self.scc,
            "s_cbranch_scc1": bool(self.scc),
            "s_cbranch_vccz": not self.vcc,
            "s_cbranch_vccnz": bool(self.vcc),
        }[name]
        if taken:
            self.at = before + 4 + 4 * (offset - 0x10000 if offset & 0x8000 else offset)

    def _execute_both(self, *texts: str) -> None:
        """Execute two instructions on the registers as they were before both."""
        before, written = self.v.copy(), {}
        for text in texts:
            name, _, rest = text.replace("v_dual_", "v_").partition(" ")
            operands, _ = _split(rest)
            # Written without the mask that it takes.
            operands += ["vcc_lo"] if "cndmask" in name else []
            self._execute(_spelled(name), operands, "")
            register = int(operands[0][1:])
            written[register], self.v = self.v[register], before.copy()
        for register, value in written.items():
            self.v[register] = value

    def _execute(self, name: str, operands: list[str], modifiers: str) -> None:
        stem = re.sub(r"_e(?:32|64)$", "", name)
        if stem.startswith("s_load"):
            self._load_scalar(operands, 4 * int(stem.partition("dwordx")[2] or 1))
        elif stem.startswith("s_"):
            self._scalar(stem, operands)
        elif stem.startswith("ds_"):
            self._exchange(stem, operands, modifiers)
        elif stem.startswith(("global_store_dword", "flat_store_dword")):
            # Regions lie beside the window of workgroup memory, so that flat addresses are global ones.
            operands = operands if stem.startswith("global") else [*operands, "off"]
            self._store(operands, 4 * int(stem.partition("dwordx")[2] or 1))
        else:
            self._vector(stem, operands)

    def _load_scalar(self, operands: list[str], size: int) -> None:
        start = self.scalar(operands[1], LANES) + int(operands[2], 0)
        match = REGISTERS.fullmatch(operands[0])
        assert match is not None
        words = struct.unpack(f"<{size // 4}I", self.memory.at(start, size))
        first = int(match[2] or match[5])
        self.s[first : first + len(words)] = words

    def _store(self, operands: list[str], size: int) -> None:
        base = 0 if operands[2] == "off" else self.scalar(operands[2], LANES)
        addresses = self.words(operands[0], LANES if operands[2] == "off" else 32)
        values = self.words(operands[1], 8 * size)
        for lane in np.flatnonzero(self.active_lanes()):
            address, value = base + int(addresses[lane]), int(values[lane])
            self.memory.at(address, size)[:] = value.to_bytes(size, "little")

    def _scalar(self, name: str, operands: list[str]) -> None:
        if "saveexec" in name:
            self._save_exec(name, *operands)
            return
        match = re.fullmatch(r"s_(cmpk?)_(\w+)_[ui](32|64)", name)
        if match:
            a, b = (self.scalar(operand, int(match[3])) for operand in operands)
            self.scc = int(_COMPARED[match[2]](a, b))
            return
        stem, _, kind = name.removeprefix("s_").rpartition("_")
        bits = int(kind[1:])
        if stem == "cselect":
            self.set_scalar(operands[0], self.scalar(operands[2 - self.scc], bits), bits)
            return
        k = stem in {"movk", "mulk"}
        given = operands if stem == "mulk" else operands[1:]
        values = [
            _from_16(text) if k and "x" in text else self.scalar(text, bits) for text in given
        ]
        result, scc = self._computed(stem, kind, values)
        self.set_scalar(operands[0], result, bits)
        self.scc = self.scc if scc is None else scc

    def _computed(self, stem: str, kind: str, values: list[int]) -> tuple[int, int | None]:
        """Return the result of a scalar operation, and what SCC becomes, if anything."""
        bits = int(kind[1:])
        top, (a, b) = (1 << bits) - 1, (*values, 0)[:2]
        if stem in _KEEPING_SCC:
            return _KEEPING_SCC[stem](a, b) & top, None
        if stem in {"add", "addc", "sub"}:
            carry = self.scc if stem == "addc" else 0
            result = a - b if stem == "sub" else a + b + carry
            is_out = result >> bits != 0 if kind[0] == "u" else _overflows(a, b)
            return result & top, int(is_out)
        if stem == "bfe":
            width, offset = b >> 16 & 127, b & 63
            part = a >> offset & ((1 << width) - 1)
            is_negative = kind[0] == "i" and width and part >> (width - 1)
            result = part - (1 << width) if is_negative else part
        else:
            signed = a - (1 << bits) if a >> (bits - 1) else a
            result = _BITWISE[stem](a, b, signed, bits - 1)
        return result & top, int(result & top != 0)

    def _save_exec(self, name: str, target: str, source: str) -> None:
        old, value = self.exec, self.scalar(source, self.lanes)
        operation = name.removeprefix("s_").partition("_saveexec")[0]
        self.exec = {"and": old & value, "or": old | value, "andn2": value & ~old}[operation]
        self.scc = int(self.exec != 0)
        self.set_scalar(target, old, self.lanes)

    def _exchange(self, name: str, operands: list[str], modifiers: str) -> None:
        active = self.active_lanes()
        offsets = [int(number) for number in re.findall(r"offset[01]?:(\d+)", modifiers)] or [0]
        if name in {"ds_bpermute_b32", "ds_swizzle_b32"}:
            if name == "ds_bpermute_b32":
                source = (self.words(operands[1]).astype(int) + offsets[0] >> 2) % self.lanes
                data = self.words(operands[2])
            else:
                source, data = _swizzled(np.arange(LANES), modifiers), self.words(operands[1])
            self.set_lanes(operands[0], np.where(active[source], data[source], 0))
            return
        is_pair, size = "2_" in name, int(name[-2:]) // 8
        steps = [offset * size for offset in offsets] if is_pair else offsets
        if is_pair and len(steps) == 1:
            steps = [0, *steps] if "offset1" in modifiers else [*steps, 0]
        is_store = "write" in name
        addresses = self.words(operands[0 if is_store else 1]).astype(int)
        for index, step in enumerate(steps):
            if is_store:
                values = self.words(operands[1 + index], 8 * size)
                for lane in np.flatnonzero(active):
                    at = self._shared(int(addresses[lane]) + step, size)
                    self.shared[at : at + size] = int(values[lane]).to_bytes(size, "little")
                continue
            found = np.zeros(LANES, np.uint64)
            for lane in np.flatnonzero(active):
                at = self._shared(int(addresses[lane]) + step, size)
                found[lane] = int.from_bytes(self.shared[at : at + size], "little")
            assert not is_pair, name
            self.set_lanes(operands[0], found, 8 * size)

    def _shared(self, address: int, size: int) -> int:
        assert 0 <= address <= len(self.shared) - size, address
        return address

    def _vector(self, name: str, operands: list[str]) -> None:
        stem, _, kind = name.removeprefix("v_").rpartition("_")
        if stem.startswith("cmp_"):
            self._compare(stem.removeprefix("cmp_"), kind, operands)
        elif stem.startswith("cmpx_"):
            self._compare(stem.removeprefix("cmpx_"), kind, ["exec", *operands])
        elif stem.endswith("_co"):
            self._with_carry(stem, operands)
        elif stem.startswith("cvt_"):
            self._convert(stem.removeprefix("cvt_"), kind, operands)
        elif kind in FLOATS:
            self._floating(stem, kind, operands)
        else:
            self._integer(stem, kind, operands)

    def _compare(self, predicate: str, kind: str, operands: list[str]) -> None:
        read: Callable[[str, Any], Vector]
        if kind in FLOATS:
            a, b = (self.floats(operand, kind) for operand in operands[1:])
        else:
            read = self.words if kind[0] == "u" else self.signed
            a, b = (read(operand, int(kind[1:])) for operand in operands[1:])
        self.set_mask(operands[0], _COMPARED[predicate](a, b))

    def _with_carry(self, stem: str, operands: list[str]) -> None:
        a, b = (self.words(operand).astype(np.int64) for operand in operands[2:4])
        carry = self.mask_of(operands[4]).astype(np.int64) if len(operands) > 4 else 0
        if stem.startswith("subrev"):
            a, b = b, a
        result = a + b + carry if stem.startswith("add") else a - b - carry
        self.set_mask(operands[1], (result < 0) | (result > WORD))
        self.set_lanes(operands[0], result & WORD)

    def _convert(self, target: str, kind: str, operands: list[str]) -> None:
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
        if stem in {"fma", "fmac"}:
            # Exact in long double for what occurs: whole numbers.
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
                a, b = self.words(given[0]), self.words(given[1])
                self.set_lanes(target, np.where(self.mask_of(given[2]), b, a))
            case "mbcnt_lo_u32" | "mbcnt_hi_u32":
                self._count_below(target, given, 32 if "hi" in stem else 0)
            case "pk_mov":
                low, high = self.words(given[0], LANES), self.words(given[1], LANES)
                both = (low & np.uint64(WORD)) | (high >> np.uint64(32) << np.uint64(32))
                self.set_lanes(target, both, LANES)
            case "mad_u64":
                product = self.words(given[1]) * self.words(given[2])
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
            # The factors have 24 bits, what is added has 32.
            values[:2] = [read(operand, 24) for operand in given[:2]]
        return cast("Vector", _ON_INTEGERS[stem](*values).astype(np.uint64) & ones(bits))

    def _count_below(self, target: str, given: list[str], shift: int) -> None:
        bits, start = self.scalar(given[0]), self.words(given[1])
        below = [
            (bits & ((1 << min(max(lane - shift, 0), 32)) - 1)).bit_count() for lane in range(LANES)
        ]
        self.set_lanes(target, start + np.array(below, np.uint64))


def _from_16(text: str) -> int:
    value = int(text, 0) & 0xFFFF
    return value - 0x10000 & WORD if value & 0x8000 else value


def _overflows(a: int, b: int) -> int:
    return ((a ^ (a + b)) & (b ^ (a + b))) >> 31 & 1


def _swizzled(lanes: Vector, modifiers: str) -> Vector:
    """Return where each lane takes its value from; other patterns do not occur."""
    match = re.fullmatch(r"offset:swizzle\(SWAP,(\d+)\)", modifiers)
    assert match is not None, modifiers
    return lanes ^ int(match[1])


def _reversed_bits(value: Vector) -> Vector:
    return np.array([int(f"{int(word):032b}"[::-1], 2) for word in value], np.uint64)


_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
}
_KEEPING_SCC: dict[str, Callable[[int, int], int]] = {
    "mov": lambda a, _: a,
    "movk": lambda a, _: a,
    "mul": lambda a, b: a * b,
    "mulk": lambda a, b: a * b,
    "mul_hi": lambda a, b: a * b >> 32,
}
_BITWISE: dict[str, Callable[[int, int, int, int], int]] = {
    "and": lambda a, b, _, __: a & b,
    "or": lambda a, b, _, __: a | b,
    "xor": lambda a, b, _, __: a ^ b,
    "andn2": lambda a, b, _, __: a & ~b,
    "lshl": lambda a, b, _, last: a << (b & last),
    "lshr": lambda a, b, _, last: a >> (b & last),
    "ashr": lambda _, b, signed, last: signed >> (b & last),
}
_ON_FLOATS: dict[str, Callable[..., Vector]] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.fmin,
    "max": np.fmax,
    "floor": np.floor,
    "trunc": np.trunc,
}
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
    "min": np.minimum,
    "max": np.maximum,
    "lshlrev": lambda by, a: a << by,
    "lshrrev": lambda by, a: a >> by,
    "ashrrev": lambda by, a: a >> by.astype(np.int64),
    "bfe": lambda a, offset, width: _field(a, int(offset[0]), int(width[0])),
    "bfrev": _reversed_bits,
}


def _field(value: Vector, offset: int, width: int) -> Vector:
    part = (value.astype(np.uint64) >> np.uint64(offset)) & np.uint64((1 << width) - 1)
    return as_signed(part, width) if value.dtype == np.int64 else part
