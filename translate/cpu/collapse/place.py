"""Places: the position of a block and of a strip in the launch, and the special registers with their IDs."""

from __future__ import annotations

from mlir_offload.toolchain.llvmc.code import Opcode, Predicate
from mlir_offload.toolchain.llvmc.ir import Type, Value
from mlir_offload.translate.cpu.collapse.frame import Frame
from mlir_offload.translate.cpu.collapse.piece import CannotCollapseError
from mlir_offload.translate.cpu.collapse.shape import Geometry

# Offsets of mo_thread_context in offload/runtime/cpu_device.h.
_TRIPLES = {"ntid": 16, "ctaid": 28, "nctaid": 40}
_LINEAR, _STATIC, _DYNAMIC, _ITEM_BYTES = 12, 56, 64, 80
_AXES = "xyz"
LARGEST_BLOCK = 1024
SUBGROUP = 32
_SUBGROUP_BITS = 5


class BlockPlace:
    """The place of a block: sizes, block ID and workgroup memory, loaded at the start of the block function."""

    def __init__(self, frame: Frame, block: Value) -> None:
        """Load the fields of the block's mo_thread_context."""
        self._frame = frame
        self.block = block
        self.registers = {
            f"{name}.{axis}": self._load(frame.i32, offset + 4 * number, is_size=name == "ntid")
            for name, offset in _TRIPLES.items()
            for number, axis in enumerate(_AXES)
        }
        self.static_shared = self._load(frame.pointer, _STATIC)
        self.dynamic_shared = self._load(frame.pointer, _DYNAMIC)
        x, y, z = (self.registers[f"ntid.{axis}"] for axis in _AXES)
        b = frame.b
        self.threads = b.binary(Opcode.MUL, b.binary(Opcode.MUL, x, y), z)
        self.item = frame.entry.alloca(frame.i8.array(_ITEM_BYTES), "item", align=16)
        for offset in range(0, _ITEM_BYTES, 8):
            self._copy(offset)
        rounded = b.binary(Opcode.ADD, self.threads, frame.number(SUBGROUP - 1))
        self.registers["nwarpid"] = b.binary(Opcode.LSHR, rounded, frame.number(_SUBGROUP_BITS))
        fixed = {"warpsize": SUBGROUP, "smid": 0, "nsmid": 1, "gridid": 0}
        self.registers |= {name: frame.number(value) for name, value in fixed.items()}

    def is_made_of(self, geometry: Geometry) -> Value:
        """Append a test whether the geometry divides the rows of the block into whole strips."""
        frame, width = self._frame, self.registers["ntid.x"]
        if geometry.is_whole_row:
            return frame.b.compare(Predicate.EQ, width, frame.number(geometry.lanes))
        rest = frame.b.binary(Opcode.AND, width, frame.number(geometry.lanes - 1))
        return frame.b.compare(Predicate.EQ, rest, frame.number(0))

    def _at(self, base: Value, offset: int) -> Value:
        frame = self._frame
        return frame.b.offset(frame.i8, base, frame.number(offset, frame.i64))

    def _load(self, type_: Type, offset: int, *, is_size: bool = False) -> Value:
        align = self._frame.module.alignment(type_)
        loaded = self._frame.b.load(type_, self._at(self.block, offset), align=align)
        if is_size:
            # Because of the range, LLVM can widen 32-bit IDs without an overflow check.
            self._frame.mark_range(loaded, 1, LARGEST_BLOCK + 1)
        return loaded

    def _copy(self, offset: int) -> None:
        frame = self._frame
        value = frame.b.load(frame.i64, self._at(self.block, offset), align=8)
        frame.b.store(value, self._at(self.item, offset), align=8)

    def set_thread(self, x: Value, y: Value, z: Value, linear: Value) -> None:
        """Store the IDs of a thread in the thread context that is passed to called functions."""
        for number, value in enumerate((x, y, z)):
            self._frame.b.store(value, self._at(self.item, 4 * number), align=4)
        self._frame.b.store(linear, self._at(self.item, _LINEAR), align=4)


class StripPlace:
    """The place of the current strip: its number in the block, and the IDs of its threads."""

    def __init__(self, frame: Frame, block: BlockPlace, geometry: Geometry) -> None:
        """Allocate the position, and arrays for thread IDs if strips are not parts of rows."""
        self._frame = frame
        self._block = block
        self._geometry = geometry
        names = () if geometry.is_row else ("x", "y", "z")
        self._arrays = {axis: frame.array(frame.i32, f"tid.{axis}") for axis in names}
        self._at = {axis: frame.variable(frame.i32, f"at.{axis}") for axis in (*_AXES, "strip")}

    def start(self) -> None:
        """Go to the first strip."""
        for variable in self._at.values():
            self._frame.b.store(self._frame.number(0), variable)

    def step(self) -> None:
        """Go to the next strip."""
        frame, b, geometry = self._frame, self._frame.b, self._geometry
        b.store(b.binary(Opcode.ADD, self.strip, frame.number(1)), self._at["strip"])
        if not geometry.is_row:
            return
        next_row = frame.number(1)
        if not geometry.is_whole_row:
            x = b.binary(Opcode.ADD, self._now("x"), frame.number(geometry.lanes))
            is_over = b.compare(Predicate.UGE, x, self._block.registers["ntid.x"])
            b.store(b.select(is_over, frame.number(0), x), self._at["x"])
            next_row = b.cast(Opcode.ZEXT, is_over, frame.i32)
        y = b.binary(Opcode.ADD, self._now("y"), next_row)
        is_plane = b.compare(Predicate.UGE, y, self._block.registers["ntid.y"])
        b.store(b.select(is_plane, frame.number(0), y), self._at["y"])
        z = b.binary(Opcode.ADD, self._now("z"), b.cast(Opcode.ZEXT, is_plane, frame.i32))
        b.store(z, self._at["z"])

    @property
    def strip(self) -> Value:
        """Return the number of the strip in its block."""
        return self._now("strip")

    @property
    def first(self) -> Value:
        """Return the linear ID of the first thread in the block."""
        frame = self._frame
        return frame.b.binary(Opcode.MUL, self.strip, self._width)

    @property
    def _width(self) -> Value:
        if self._geometry.is_any_width:
            return self._block.registers["ntid.x"]
        return self._frame.number(self._geometry.lanes)

    @property
    def has_more(self) -> Value:
        """Append a test whether the block has threads after the strip."""
        frame, registers = self._frame, self._block.registers
        if self._geometry.is_any_width:
            following = frame.b.binary(Opcode.ADD, self.strip, frame.number(1))
            rows = frame.b.binary(Opcode.MUL, registers["ntid.y"], registers["ntid.z"])
            return frame.b.compare(Predicate.ULT, following, rows)
        behind = frame.b.binary(Opcode.ADD, self.first, self._width)
        return frame.b.compare(Predicate.ULT, behind, self._block.threads)

    def _now(self, name: str) -> Value:
        if name == "x" and self._geometry.is_whole_row:
            return self._frame.number(0)
        return self._frame.b.load(self._frame.i32, self._at[name])

    def find_threads(self) -> None:
        """Compute the thread IDs of the strip if they are divergent."""
        if self._geometry.is_row:
            return
        frame = self._frame
        frame.loop(self._find_thread)

    def _find_thread(self, lane: Value) -> None:
        frame, b = self._frame, self._frame.b
        linear = self.linear(lane)
        width, height = (self._block.registers[f"ntid.{axis}"] for axis in "xy")
        row = b.binary(Opcode.UDIV, linear, width)
        frame.put(b.binary(Opcode.UREM, linear, width), self._arrays["x"], lane)
        frame.put(b.binary(Opcode.UREM, row, height), self._arrays["y"], lane)
        frame.put(b.binary(Opcode.UDIV, row, height), self._arrays["z"], lane)

    def exists(self) -> Value:
        """Return a vector of i1: the lanes whose thread exists."""
        frame, b = self._frame, self._frame.b
        lanes = self._geometry.lanes
        numbers = b.binary(
            Opcode.ADD, b.splat(self.first, lanes), frame.constants(list(range(lanes)))
        )
        return b.compare(Predicate.ULT, numbers, b.splat(self._block.threads, lanes))

    def linear(self, lane: Value) -> Value:
        """Return the linear ID of a thread in the block, in a loop over lanes."""
        b = self._frame.b
        return b.binary(Opcode.ADD, self.first, b.cast(Opcode.TRUNC, lane, self._frame.i32))

    def id_of(self, axis: str, lane: Value) -> Value:
        """Return the ID of a thread on an axis, in a loop over lanes."""
        frame, b = self._frame, self._frame.b
        if not self._geometry.is_row:
            return frame.get(frame.i32, self._arrays[axis], lane)
        now = self._now(axis)
        if axis != "x":
            return now
        return b.binary(Opcode.ADD, now, b.cast(Opcode.TRUNC, lane, frame.i32))

    def register(self, name: str) -> Value:
        """Return a uniform or linear special register of lane 0."""
        frame, b = self._frame, self._frame.b
        if name.startswith("tid."):
            return self._now(name[-1])
        if name == "laneid":
            return b.binary(Opcode.AND, self.first, frame.number(SUBGROUP - 1))
        if name == "warpid":
            return b.binary(Opcode.LSHR, self.first, frame.number(_SUBGROUP_BITS))
        found = self._block.registers.get(name)
        if found is None:
            msg = f"the register {name}"
            raise CannotCollapseError(msg)
        return found

    def lane_register(self, name: str, lane: Value) -> Value:
        """Return a special register of a lane, in a loop over lanes."""
        if name.startswith("tid."):
            return self.id_of(name[-1], lane)
        frame, b = self._frame, self._frame.b
        number = b.binary(Opcode.AND, self.linear(lane), frame.number(SUBGROUP - 1))
        if name == "laneid":
            return number
        if name == "warpid":
            return b.binary(Opcode.LSHR, self.linear(lane), frame.number(_SUBGROUP_BITS))
        bit = b.binary(Opcode.SHL, frame.number(1), number)
        below = b.binary(Opcode.SUB, bit, frame.number(1))
        masks: dict[str, Value] = {
            "eq": bit,
            "lt": below,
            "le": b.binary(Opcode.OR, bit, below),
            "ge": b.binary(Opcode.XOR, below, frame.number(-1)),
        }
        masks["gt"] = b.binary(Opcode.XOR, masks["le"], frame.number(-1))
        found = masks.get(name.removeprefix("lanemask."))
        if found is None:
            msg = f"the register {name}"
            raise CannotCollapseError(msg)
        return found
