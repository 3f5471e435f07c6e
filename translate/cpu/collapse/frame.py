"""The frame of generated code: the block function, its memory, and its loops over lanes."""

from __future__ import annotations

from collections.abc import Callable

from mlir_offload.toolchain.llvmc.builder import Builder
from mlir_offload.toolchain.llvmc.code import Opcode, Predicate, TypeKind
from mlir_offload.toolchain.llvmc.ir import Block, Context, Function, Instruction, Type, Value
from mlir_offload.toolchain.llvmc.metadata import Metadata
from mlir_offload.toolchain.llvmc.module import Module
from mlir_offload.translate.cpu.collapse.piece import CannotCollapseError

GROUP_NODE = "mo.access.group"
WORKGROUP_NODE = "mo.workgroup.scopes"
# half, float, double, bfloat of LLVMTypeKind.
_FLOATS = (1, 2, 3, 18)
_BYTE_WIDTHS = (8, 16, 32, 64)
_VECTOR_ALIGN = 64
_MOST_BLOCK_BYTES = 1 << 19
# The number of f32 elements in an AVX-512 register; for narrower registers, LLVM splits the vectors.
_VECTOR_WIDTH = 16
_UNROLLED = 16


class Frame:
    """A frame: a block function under construction.

    `b` appends to the current basic block, `entry` to the first one, which contains the allocations.
    """

    def __init__(self, module: Module, function: Function, b: Builder, entry: Builder) -> None:
        """Append an empty entry block."""
        self.module = module
        self.context: Context = module.context
        self.function = function
        self.b = b
        self.entry = entry
        self.lanes = 0
        self._for_block: dict[tuple[object, int], Value] = {}
        self._block_bytes = 0
        self.i1, self.i8, self.i32, self.i64 = (
            self.context.integer(bits) for bits in (1, 8, 32, 64)
        )
        self.pointer = self.context.pointer
        self._group = module.named_node(GROUP_NODE)
        self._workgroup = module.named_node(WORKGROUP_NODE)
        self._metadata = Metadata(self.context)
        self._group_kind = self._metadata.kind("llvm.access.group")
        self._loop_kind = self._metadata.kind("llvm.loop")
        entry.go(function.append_block("entry"))

    def new_block(self, name: str) -> Block:
        """Append a basic block."""
        return self.function.append_block(name)

    def number(self, value: int, type_: Type | None = None) -> Value:
        """Return an integer constant, of 32 bits by default."""
        return self.context.constant(type_ or self.i32, value)

    # Memory -------------------------------------------------------------------------------

    def stored_type(self, type_: Type) -> Type:
        """Return the type of a value in memory: i8 for i1."""
        return self.i8 if type_ is self.i1 else type_

    def has_vectors(self, type_: Type) -> bool:
        """Return whether an array of the type has the layout of a vector."""
        return (
            type_.kind in _FLOATS
            or type_.kind == TypeKind.POINTER
            or type_ is self.i1
            or type_.bits in _BYTE_WIDTHS
        )

    def variable(self, type_: Type, name: str) -> Value:
        """Allocate memory for one value."""
        return self.entry.alloca(type_, name, align=self.module.alignment(type_))

    def array(self, type_: Type, name: str, count: int = 0, align: int = 0) -> Value:
        """Allocate an array with an element for each lane, or with `count` elements. Align it at least for vectors."""
        made = self.stored_type(type_).array(count or self.lanes)
        return self.entry.alloca(made, name, align=max(align, _VECTOR_ALIGN))

    def block_memory(
        self, key: object, type_: Type, count: int, name: str, align: int = 0
    ) -> Value:
        """Return an array for the whole block; calls with the same key and count return the same array.

        Raises CannotCollapseError if the arrays are too large for a stack.
        """
        found = self._for_block.get((key, count))
        if found is None:
            self._block_bytes += self.module.size_bytes(self.stored_type(type_)) * count
            if self._block_bytes > _MOST_BLOCK_BYTES:
                msg = f"more than {_MOST_BLOCK_BYTES >> 10} KiB of memory for a block"
                raise CannotCollapseError(msg)
            found = self._for_block[key, count] = self.array(type_, name, count, align)
        return found

    def element(self, type_: Type, array: Value, index: Value) -> Value:
        """Return the address of an element."""
        return self.b.offset(self.stored_type(type_), array, index)

    def get(self, type_: Type, array: Value, lane: Value) -> Value:
        """Load the value of a lane, in a loop over lanes."""
        loaded = self.b.load(self.stored_type(type_), self.element(type_, array, lane))
        self._mark_slot(loaded)
        if type_ is self.i1:
            return self.b.cast(Opcode.TRUNC, loaded, type_)
        return loaded

    def put(self, value: Value, array: Value, lane: Value) -> None:
        """Store the value of a lane, in a loop over lanes."""
        stored = self.b.cast(Opcode.ZEXT, value, self.i8) if value.type is self.i1 else value
        self._mark_slot(self.b.store(stored, self.element(value.type, array, lane)))

    def get_all(self, type_: Type, array: Value) -> Value:
        """Load the values of all lanes as a vector."""
        made = self.stored_type(type_).vector(self.lanes)
        loaded = self.b.load(made, array, align=1)
        if type_ is self.i1:
            return self.b.compare(Predicate.NE, loaded, made.null)
        return loaded

    def put_all(self, vector: Value, array: Value, type_: Type) -> None:
        """Store the values of all lanes."""
        stored = vector
        if type_ is self.i1:
            stored = self.b.cast(Opcode.ZEXT, vector, self.i8.vector(self.lanes))
        self.b.store(stored, array, align=1)

    def masked_load(self, type_: Type, address: Value, mask: Value) -> Instruction:
        """Load the elements of a vector in a mask; the others are 0."""
        load = self.module.intrinsic("llvm.masked.load", [type_, self.pointer])
        return self._masked(load, [address, mask, type_.null])

    def masked_store(self, value: Value, address: Value, mask: Value) -> Instruction:
        """Store the elements of a vector in a mask."""
        store = self.module.intrinsic("llvm.masked.store", [value.type, self.pointer])
        return self._masked(store, [value, address, mask])

    def _masked(self, intrinsic: Function, arguments: list[Value]) -> Instruction:
        """Append a masked access. Before LLVM 22, a parameter after the address contains the alignment."""
        if len(intrinsic.parameters) > len(arguments):
            place = next(n for n, a in enumerate(arguments) if a.type is self.pointer) + 1
            arguments.insert(place, self.number(1))
        return self.b.call(intrinsic, arguments)

    def copy(self, type_: Type, source: Value, target: Value) -> None:
        """Copy the values of all lanes."""
        stored = self.stored_type(type_)
        if self.has_vectors(stored):
            made = stored.vector(self.lanes)
            self.b.store(self.b.load(made, source, align=1), target, align=1)
        else:
            self.loop(lambda lane: self.put(self.get(type_, source, lane), target, lane))

    def bits(self, mask: Value) -> Value:
        """Return a vector of i1 as an integer, lane 0 in its lowest bit."""
        return self.b.cast(Opcode.BITCAST, mask, self.context.integer(self.lanes))

    def any_of(self, mask: Value) -> Value:
        """Append a test whether an element of a vector of i1 is set."""
        bits = self.bits(mask)
        return self.b.compare(Predicate.NE, bits, bits.type.null)

    def all_of(self, mask: Value) -> Value:
        """Append a test whether all elements of a vector of i1 are set."""
        bits = self.bits(mask)
        return self.b.compare(Predicate.EQ, bits, self.number(-1, bits.type))

    def first_of(self, mask: Value) -> Value:
        """Append the number, as i64, of the first element of a vector of i1 that is set; `lanes` if none is."""
        bits = self.bits(mask)
        type_ = self.context.function_type(bits.type, [bits.type, self.i1])
        count = self.module.declare(f"llvm.cttz.i{self.lanes}", type_)
        found = self.b.call(count, [bits, self.number(0, self.i1)])
        return self.b.cast(Opcode.ZEXT, found, self.i64) if self.lanes < self.i64.bits else found

    def constants(self, numbers: list[int], type_: Type | None = None) -> Value:
        """Return a vector of integer constants, of 32 bits by default."""
        return self.context.constant_vector([self.number(n, type_) for n in numbers])

    # Loops --------------------------------------------------------------------------------

    def mark_parallel(self, access: Instruction) -> None:
        """Add the access group of parallel loops: accesses of different lanes do not depend on each other."""
        access.mark(self._group_kind, self._group)

    def mark_range(self, load: Instruction, low: int, high: int) -> None:
        """Add range metadata to a load of i32: the value is at least `low` and less than `high`."""
        made = self._metadata
        ends = (made.value(self.number(n)) for n in (low, high))
        load.mark(made.kind("range"), made.node(*ends))

    def mark_workgroup(self, access: Instruction, *, is_inside: bool) -> None:
        """Add alias metadata to an access: it is in workgroup memory, or it is not."""
        kind = "alias.scope" if is_inside else "noalias"
        access.mark(self._metadata.kind(kind), self._workgroup)

    def _mark_slot(self, access: Instruction) -> None:
        """Mark the access of one lane to a slot, which is not in workgroup memory.

        If LLVM merges a load and a store into a copy, it keeps only the metadata that both have.
        """
        self.mark_parallel(access)
        self.mark_workgroup(access, is_inside=False)

    def loop(
        self,
        body: Callable[[Value], None],
        *,
        guard: Value | None = None,
        is_parallel: bool = True,
        vectors: int = 0,
        part: tuple[Value, Value] | None = None,
    ) -> None:
        """Append a loop over lanes (work-item loop).

        Lanes execute the body if their element of the array `guard` is set. `part` is the first lane and the end
        of the loop, which executes at least one lane. `vectors` is not 0 if the body calls libm. LLVM then chooses
        the width of vectors, because it knows the vector variants of the functions, and calls each function for so
        many vectors one after the other, which the processor executes at the same time.
        """
        before = self.b.block
        head, inner, latch, out = (
            self.new_block(name) for name in ("lane", "lane.run", "lane.next", "lane.out")
        )
        self.b.jump(head)
        self.b.go(head)
        lane = self.b.phi(self.i64)
        if guard is None:
            self.b.jump(inner)
        else:
            self.b.branch(self.get(self.i1, guard, lane), inner, latch)
        self.b.go(inner)
        body(lane)
        self.b.jump(latch)
        self.b.go(latch)
        following = self.b.next_number(lane)
        begin, end = part or (self.number(0, self.i64), self.number(self.lanes, self.i64))
        has_more = self.b.compare(Predicate.NE, following, end)
        branch = self.b.branch(has_more, head, out)
        self.b.add_incoming(lane, begin, before)
        self.b.add_incoming(lane, following, latch)
        branch.mark(self._loop_kind, self._loop_node(is_parallel, vectors, part is not None))
        self.b.go(out)

    def unroll(self, branch: Instruction) -> None:
        """Add loop metadata to a latch branch: LLVM unrolls the loop by the width of a tile.

        A loop with as many iterations as a tile is wide is unrolled completely.
        """
        made = self._metadata
        count = made.node(made.text("llvm.loop.unroll.count"), made.value(self.number(_UNROLLED)))
        branch.mark(self._loop_kind, made.distinct_node(count))

    def _loop_node(self, is_parallel: bool, vectors: int, is_part: bool) -> int:  # noqa: FBT001 (of `loop`)
        made = self._metadata
        text, node = made.text, made.node
        if not is_parallel:
            return made.distinct_node(node(text("llvm.loop.mustprogress")))
        width = min(self.lanes, _VECTOR_WIDTH)

        def setting(name: str, value: Value) -> int:
            return node(text(f"llvm.loop.{name}"), made.value(value))

        chosen = []
        if not vectors and not is_part:
            chosen.append(setting("vectorize.width", self.number(width)))
            vectors = self.lanes // width
        if vectors:
            chosen.append(setting("interleave.count", self.number(vectors)))
        return made.distinct_node(
            node(text("llvm.loop.mustprogress")),
            # Unrolling would prevent vectorization, after which a single iteration is left.
            node(text("llvm.loop.unroll.disable")),
            node(text("llvm.loop.parallel_accesses"), self._group),
            setting("vectorize.enable", self.number(1, self.i1)),
            *chosen,
        )
