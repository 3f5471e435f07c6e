"""Execute the machine code of kernels for gfx90a and gfx1100 from its disassembly, one wave at a time.

Sources: AMD Instinct MI200 and RDNA3 Instruction Set Architecture, reference guides; kernel descriptor: User
Guide for the AMDGPU back end. RDNA3 mnemonics are mapped to those of MI200. Supported are the instructions of
the examples and of kernels with reductions, shuffles and rotations; any other one is an error, and so are
addresses outside the memory of the kernel.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from support.amd_memory import Memory
from support.amd_registers import LANES, WORD, Vector, register_of
from support.amd_vector import COMPARED, Vectors

_LINE = re.compile(r"\s+([a-z]\w+)\s*(.*?)\s*// ([0-9A-F]+):")
_SIZES = {
    "b32": "dword",
    "b64": "dwordx2",
    "b96": "dwordx3",
    "b128": "dwordx4",
    "u8": "ubyte",
    "u16": "ushort",
    "d16_b16": "short_d16",
}
# RDNA3 mnemonics with other spellings.
_SPELLINGS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"^ds_load_2addr(?:_stride(64))?"), lambda match: f"ds_read2{_far(match)}"),
    (re.compile(r"^ds_store_2addr(?:_stride(64))?"), lambda match: f"ds_write2{_far(match)}"),
    (re.compile(r"^ds_load"), lambda _: "ds_read"),
    (re.compile(r"^ds_store"), lambda _: "ds_write"),
    (
        re.compile(r"^(global_store|flat_store|global_load|s_load)_(b\d+|u8|u16|d16_b16)$"),
        lambda match: f"{match[1]}_{_SIZES[match[2]]}",
    ),
    (re.compile(r"^(global_atomic_\w+)_[ub]32$"), lambda match: match[1]),
    (re.compile(r"(?<=^s_and)_not1"), lambda _: "n2"),
    (re.compile(r"^v_(add|sub|subrev)_nc_"), lambda match: f"v_{match[1]}_"),
    (re.compile(r"^v_(add|sub)_co_ci_"), lambda match: f"v_{match[1]}c_co_"),
)
_WAITS = re.compile(
    r"s_waitcnt\w*|s_nop|s_clause|s_delay_alu|s_set_inst_prefetch_distance|s_sendmsg|buffer_(?:gl\d_inv|wbl2|invl2|wbinvl1_vol)"
)
_DATA = re.compile(
    r"(?:global|flat)_(?P<action>load|store)_(?:dword(?:x(?P<count>\d))?|(?P<short>ubyte|ushort|short_d16))"
)
_SHARED = re.compile(r"ds_(?P<action>read|write)(?P<pair>2)?(?P<far>st64)?_b(?P<bits>32|64|96|128)")
_SHORTS = {"ubyte": 1, "ushort": 2, "short_d16": 2}
_BOTH = " :: "


@dataclass(frozen=True, slots=True)
class Code:
    """Instructions by address: name, operands, modifiers, and the address of the next instruction."""

    instructions: dict[int, tuple[str, list[str], str, int]]


def parse_code(disassembly: str) -> Code:
    """Parse the output of `llvm-objdump -d`."""
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


@dataclass(frozen=True, slots=True)
class Kernel:
    """The entry point of a kernel, and the fields of its descriptor."""

    entry: int
    workgroup_bytes: int
    private_bytes: int
    user_registers: int
    block_axes: tuple[int, ...]
    properties: int

    @classmethod
    def parse(cls, address: int, descriptor: bytes) -> Kernel:
        """Parse a kernel descriptor at an address."""
        workgroup_bytes, private_bytes = struct.unpack_from("<II", descriptor, 0)
        entry = address + struct.unpack_from("<q", descriptor, 16)[0]
        resources, properties = struct.unpack_from("<IH", descriptor, 52)
        axes = tuple(axis for axis in range(3) if resources >> (7 + axis) & 1)
        return cls(entry, workgroup_bytes, private_bytes, resources >> 1 & 31, axes, properties)


@dataclass(slots=True, kw_only=True)
class Wave(Vectors):
    """A wave: its registers, program and memory."""

    code: Code
    memory: Memory
    shared: Memory
    at: int

    def run(self) -> Iterator[None]:
        """Execute to the end; yields at each barrier."""
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
        """Execute a dual instruction: both halves read the registers as they were before."""
        before, written = self.v.copy(), {}
        for text in texts:
            name, _, rest = text.replace("v_dual_", "v_").partition(" ")
            operands, _ = _split(rest)
            # The assembly omits the mask operand.
            operands += ["vcc_lo"] if "cndmask" in name else []
            self._execute(_spelled(name), operands, "")
            register = int(operands[0][1:])
            written[register], self.v = self.v[register], before.copy()
        for register, value in written.items():
            self.v[register] = value

    def _execute(self, name: str, operands: list[str], modifiers: str) -> None:
        stem = name.removesuffix("_e32").removesuffix("_e64")
        if stem.startswith("s_load"):
            self._load_scalar(operands, 4 * int(stem.partition("dwordx")[2] or 1))
        elif stem.startswith("s_"):
            self._scalar(stem, operands)
        elif stem in {"ds_bpermute_b32", "ds_swizzle_b32"}:
            self._exchange(stem, operands, modifiers)
        elif stem.startswith("ds_"):
            self._access_shared(stem, operands, modifiers)
        elif stem.startswith(("global_", "flat_")):
            # Regions are outside the aperture of workgroup memory, so that flat addresses are global addresses.
            operands = operands if stem.startswith("global") else [*operands, "off"]
            self._access(stem, operands, modifiers)
        else:
            self.vector(stem, operands, modifiers)

    def _load_scalar(self, operands: list[str], size: int) -> None:
        offset = 0 if operands[2] == "null" else int(operands[2], 0)
        start = self.scalar(operands[1], LANES) + offset
        words = struct.unpack(f"<{size // 4}I", self.memory.at(start, size))
        first = register_of(operands[0]).first
        self.s[first : first + len(words)] = words

    def _access(self, name: str, operands: list[str], modifiers: str) -> None:
        active, has_base = self.active_lanes(), operands[-1] != "off"
        is_atomic = "atomic" in name
        has_result = "_load_" in name or (is_atomic and "glc" in modifiers)
        *given, base = operands[1:] if has_result else operands
        addresses = self.words(given[0], 32 if has_base else LANES)[active]
        step = sum(map(int, re.findall(r"offset:(-?\d+)", modifiers)))
        offset = step + (self.scalar(base, LANES) if has_base else 0)
        addresses = addresses + np.uint64(offset & (2**LANES - 1))
        if is_atomic:
            change = name.partition("atomic_")[2]
            before = self._update(self.memory, change, addresses, given[1])
            if has_result:
                self.set_bytes(operands[0], before)
            return
        match = _DATA.fullmatch(name)
        assert match is not None, name
        size = _SHORTS.get(match["short"]) or 4 * int(match["count"] or 1)
        if match["action"] == "store":
            self.memory.store(addresses, self.bytes_of(given[1], size))
        else:
            keeps = match["short"] == "short_d16"
            self.set_bytes(operands[0], self.memory.load(addresses, size), keeps=keeps)

    def _update(self, memory: Memory, change: str, addresses: Vector, text: str) -> Vector:
        size = 8 if change == "cmpswap" else 4
        operands = self.bytes_of(text, size).view("<u4")
        return memory.update(addresses, operands, _UPDATES[change])

    def _scalar(self, name: str, operands: list[str]) -> None:
        if "saveexec" in name:
            self._save_exec(name, *operands)
            return
        match = re.fullmatch(r"s_(cmpk?)_(\w+)_[ui](32|64)", name)
        if match:
            a, b = (self.scalar(operand, int(match[3])) for operand in operands)
            self.scc = int(COMPARED[match[2]](a, b))
            return
        stem, _, kind = name.removeprefix("s_").rpartition("_")
        bits = int(kind[1:])
        if stem == "bcnt1_i32":
            count = self.scalar(operands[1], bits).bit_count()
            self.set_scalar(operands[0], count)
            self.scc = int(count != 0)
            return
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
        """Return the result of a scalar operation, and the new SCC; None if SCC does not change."""
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
        if name == "ds_bpermute_b32":
            offset = sum(map(int, re.findall(r"offset:(\d+)", modifiers)))
            source = (self.words(operands[1]).astype(int) + offset >> 2) % self.lanes
            data = self.words(operands[2])
        else:
            source, data = _swizzled(np.arange(LANES), modifiers), self.words(operands[1])
        self.set_lanes(operands[0], np.where(active[source], data[source], 0))

    def _access_shared(self, name: str, operands: list[str], modifiers: str) -> None:
        active = self.active_lanes()
        steps = dict(re.findall(r"offset([01]?):(\d+)", modifiers))
        if name == "ds_add_u32":
            addresses = self.words(operands[0])[active] + np.uint64(int(steps.get("", 0)))
            self._update(self.shared, "add", addresses, operands[1])
            return
        match = _SHARED.fullmatch(name)
        assert match is not None, name
        size, is_read = int(match["bits"]) // 8, match["action"] == "read"
        unit = size * (64 if match["far"] else 1) if match["pair"] else 1
        addresses = self.words(operands[1 if is_read else 0])[active]
        places = [
            addresses + np.uint64(int(steps.get(key, 0)) * unit)
            for key in (("0", "1") if match["pair"] else ("",))
        ]
        if is_read:
            rows = np.hstack([self.shared.load(place, size) for place in places])
            self.set_bytes(operands[0], rows)
            return
        for place, text in zip(places, operands[1:], strict=True):
            self.shared.store(place, self.bytes_of(text, size))


def _far(match: re.Match[str]) -> str:
    return "st64" if match[1] else ""


def _from_16(text: str) -> int:
    value = int(text, 0) & 0xFFFF
    return value - 0x10000 & WORD if value & 0x8000 else value


def _overflows(a: int, b: int) -> int:
    return ((a ^ (a + b)) & (b ^ (a + b))) >> 31 & 1


def _swizzled(lanes: Vector, modifiers: str) -> Vector:
    """Return the source lane of each lane. Other swizzle patterns do not occur."""
    match = re.fullmatch(r"offset:swizzle\(SWAP,(\d+)\)", modifiers)
    assert match is not None, modifiers
    return lanes ^ int(match[1])


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
_UPDATES: dict[str, Callable[[int, list[int]], int]] = {
    "add": lambda old, given: old + given[0],
    "cmpswap": lambda old, given: given[0] if old == given[1] else old,
}
