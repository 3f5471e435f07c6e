"""What code between two barriers computes from arguments and ids alone, ready to be written elsewhere.

A slice is a chain of pure instructions. The entry point of a kernel evaluates slices once for a row of
threads: conditions, to run the row without masks, and values that all threads share.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from mlir_offload.offload.ir_syntax import LLVM_IR
from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.path import Place, Region
from mlir_offload.translate.cpu.text import CALL, callee_name, first_type, type_end
from mlir_offload.translate.cpu.uniform import is_pure
from mlir_offload.translate.cpu.values import POISON_FLAGS, TOKEN, opcode, used_names

X = "%mo.x"
# A longer computation is not worth doing twice.
_LONGEST = 64
_REGISTER = ir_pattern("mo.read.ptx.sreg.`register:tid|ntid|ctaid|nctaid`.`axis:x|y|z`")
_METADATA = ir_pattern(", !`dotted` !`number`")
_NAMES = {"ntid": "block_dim", "ctaid": "block_id", "nctaid": "grid_dim"}
_READ_X = "@mo.read.ptx.sreg.tid.x("


class Slice(Struct, frozen=True):
    """Instructions in order, then the operand that holds the result; `X` is the thread's x.

    `needs_row`: it takes the thread's y or z.
    """

    lines: tuple[str, ...]
    value: str
    needs_x: bool
    needs_row: bool


class SliceWriter:
    """Writes slices of one region with names of their own."""

    def __init__(self, region: Region, prefix: str = "q", loop: str = "q", x: str = X) -> None:
        """Name values `%PREFIX0`, `%PREFIX1`; y and z of the row are `%LOOP.y` and `%LOOP.z`."""
        self._region = region
        self._code = region.code
        self._prefix = prefix
        self._loop = loop
        self._x = x
        self._lines: list[str] = []
        self._values: dict[tuple[str, bool], str | None] = {}

    def slice(self, value: str, places: Sequence[Place]) -> Slice | None:
        """Return what computes the operand as it is seen from all of the places.

        None where memory or a loop takes part in it.
        """
        if value.startswith("%"):
            versions = {self._region.is_new(value, place) for place in places}
            if len(versions) != 1:
                return None
        return self._finish(self._write(value, places[0]))

    def definition(self, name: str) -> Slice | None:
        """Return what computes the value that the region defines."""
        return self._finish(self._instruction(name))

    def _finish(self, value: str | None) -> Slice | None:
        if value is None:
            return None
        used = {value, *(name for line in self._lines for name in TOKEN.findall(line))}
        needs_row = f"%{self._loop}.y" in used or f"%{self._loop}.z" in used
        return Slice(tuple(self._lines), value, self._x in used, needs_row)

    def _write(self, value: str, place: Place) -> str | None:
        if not value.startswith("%"):
            return value if TOKEN.search(value) is None else None
        if value in self._code.arguments:
            return self._code.arguments[value]
        if value not in self._code.lines or len(self._values) > _LONGEST:
            return None
        is_new = self._region.is_new(value, place)
        if is_new is None:
            return None
        if not is_new:
            return self._region.brought[value]
        key = (value, is_new)
        if key not in self._values:
            self._values[key] = None
            self._values[key] = self._instruction(value)
        return self._values[key]

    def _instruction(self, name: str) -> str | None:
        line = self._code.lines[name]
        if opcode(line) == "phi":
            only = self._region.only_operand(name)
            return self._write(*only) if only else None
        if not is_pure(line):
            return None
        match = CALL.match(line)
        if match and callee_name(match["callee"]).startswith("mo."):
            return self._register(callee_name(match["callee"]))
        text = without_metadata(line.split(" = ", 1)[1])
        place = self._region.place_of(name)
        operands: dict[str, str] = {}
        for used in used_names(line):
            operand = self._write(used, place)
            if operand is None:
                return None
            operands[used] = operand
        text = TOKEN.sub(lambda match: operands.get(match[0], match[0]), text)
        written = f"%{self._prefix}{len(self._lines)}"
        # Evaluated where the kernel may not: nothing may become poison that is none there.
        self._lines.append(f"  {written} = {POISON_FLAGS.sub('', text)}")
        return written

    def _register(self, name: str) -> str | None:
        if name in {"mo.static_shared", "mo.dynamic_shared"}:
            return "%static" if "static" in name else "%dynamic"
        match = _REGISTER.fullmatch(name)
        if match is None:
            return None
        if match[1] != "tid":
            return f"%{_NAMES[match[1]]}.{match[2]}"
        return self._x if match[2] == "x" else f"%{self._loop}.{match[2]}"


def without_metadata(text: str) -> str:
    """Return the instruction without `!dbg` and the like."""
    return _METADATA.sub("", text)


def depends_on_x(region: Region, value: str, place: Place) -> bool:
    """Say whether the operand differs between the threads of a row, or may."""
    found = SliceWriter(region).slice(value, [place])
    return found is None or found.needs_x


def grows_with_x(region: Region, value: str, place: Place) -> bool:
    """Say whether the operand is x plus something the row shares, in the arithmetic of its width."""
    lines = region.code.lines
    if value not in lines or not region.is_new(value, place):
        return False
    line, name = lines[value], opcode(lines[value])
    if name == "phi":
        only = region.only_operand(value)
        return only is not None and grows_with_x(region, *only)
    if CALL.match(line):
        return _READ_X in line
    parts = LLVM_IR.split_list(
        without_metadata(POISON_FLAGS.sub("", line.split(f" = {name} ", 1)[1]))
    )
    first = parts[0][type_end(parts[0]) :].strip().split(" to ")[0]
    here = region.place_of(value)
    if name in {"sext", "zext"}:
        return _READ_X in lines.get(first, "")
    if name in {"add", "sub"}:
        return _one_grows(region, here, first, parts[1], is_symmetric=name == "add")
    return name == "trunc" and grows_with_x(region, first, here)


def _one_grows(
    region: Region, place: Place, first: str, second: str, *, is_symmetric: bool
) -> bool:
    if grows_with_x(region, first, place):
        return not depends_on_x(region, second, place)
    return is_symmetric and (
        grows_with_x(region, second, place) and not depends_on_x(region, first, place)
    )


class Comparison(Struct, frozen=True):
    """`icmp` taken apart."""

    predicate: str
    type: str
    first: str
    second: str


def parse_comparison(line: str) -> Comparison | None:
    """Return the parts of an integer comparison."""
    if opcode(line) != "icmp":
        return None
    text = without_metadata(POISON_FLAGS.sub("", line.split(" = icmp ", 1)[1]))
    predicate, rest = text.split(" ", 1)
    type_ = first_type(rest)
    first, second = LLVM_IR.split_list(rest[len(type_) :].strip())
    return Comparison(predicate, type_, first, second)
