"""The function that runs a block: for each entrance of the kernel, loops over rows of threads."""

from __future__ import annotations

from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.kernel import (
    END,
    BarrierSplitKernel,
    Entrance,
    Slot,
    uniform_exits,
)
from mlir_offload.translate.cpu.launch import (
    Metadata,
    copy_block,
    fill_thread_context,
    load_arguments,
    run_head,
)
from mlir_offload.translate.cpu.path import Region
from mlir_offload.translate.cpu.shared import size_of
from mlir_offload.translate.cpu.slice import SliceWriter
from mlir_offload.translate.cpu.text import symbol
from mlir_offload.translate.cpu.variant import (
    Choice,
    Cut,
    Leaf,
    Ranges,
    Variant,
    cut_ranges,
    intersect,
    leaves_of,
)

_LOCATION = ir_pattern("!dbg `node:node`")
_WHOLE_ROW = Ranges((("0", "%block_dim.x"),))


def block_function_definition(name: str, region: BarrierSplitKernel, metadata: Metadata) -> str:
    """Return a function as mo_kernel.run is one: entrance after entrance, z, y and x loops, x innermost."""
    loads, operands = load_arguments(region.arguments)
    writer = _Writer(region, operands, metadata)
    return "\n".join(
        (
            *_places(region),
            run_head(name, "%block", metadata),
            "entry:",
            *copy_block(),
            *loads,
            "  %to = alloca i32",
            *(f"  {_variable(slot)} = alloca {slot.type}" for slot in region.uniform),
            "  br label %s0.begin",
            *(line for entrance in region.entrances for line in writer.entrance(entrance)),
            "done:",
            "  ret void",
            "}",
        )
    )


def places_name(function: str) -> str:
    """Return the name of the table of the barriers of a split function, by their numbers."""
    return f"{function}.barriers"


def _places(region: BarrierSplitKernel) -> tuple[str, ...]:
    """Return the table of barriers if threads may have to tell which one is theirs."""
    if not any(entrance.has_choice for entrance in region.entrances):
        return ()
    listed = ", ".join(f"ptr {place}" for place in region.places)
    name = symbol(places_name(region.function.name))
    return (f"{name} = internal constant [{len(region.places)} x ptr] [{listed}]",)


def _variable(slot: Slot) -> str:
    return f"%u{slot.offset}"


class _Writer:
    """Writes the loops; all of one kernel share arguments and marks."""

    def __init__(
        self, region: BarrierSplitKernel, operands: tuple[str, ...], metadata: Metadata
    ) -> None:
        self._region = region
        self._operands = operands
        self._metadata = metadata
        self._entrance = region.entrances[0]
        self._marked: set[str] = set()

    def entrance(self, entrance: Entrance) -> tuple[str, ...]:
        """Return the loops of one entrance, from the label `sN.begin` to the jump behind them."""
        self._entrance = entrance
        p = f"s{entrance.number}"
        return (
            f"{p}.begin:",
            *(
                f"  %{p}.u{slot.offset} = load {slot.type}, ptr {_variable(slot)}"
                for slot in entrance.live
                if slot.is_uniform
            ),
            *(("  store i32 -1, ptr %to",) if entrance.has_choice else ()),
            *self._line_marks(entrance),
            f"  br label %{p}.z.head",
            f"{p}.z.head:",
            f"  %{p}.z = phi i32 [ 0, %{p}.begin ], [ %{p}.z.next, %{p}.z.latch ]",
            f"  %{p}.zrow = mul nuw nsw i32 %{p}.z, %block_dim.y",
            f"  br label %{p}.y.head",
            f"{p}.y.head:",
            f"  %{p}.y = phi i32 [ 0, %{p}.z.head ], [ %{p}.y.next, %{p}.y.latch ]",
            f"  %{p}.row = add nuw nsw i32 %{p}.zrow, %{p}.y",
            f"  %{p}.first = mul nuw nsw i32 %{p}.row, %block_dim.x",
            *self._variant(entrance.variant, f"{p}.v", _WHOLE_ROW, f"{p}.y.latch"),
            f"{p}.y.latch:",
            f"  %{p}.y.next = add nuw nsw i32 %{p}.y, 1",
            f"  %{p}.y.more = icmp ult i32 %{p}.y.next, %block_dim.y",
            f"  br i1 %{p}.y.more, label %{p}.y.head, label %{p}.z.latch",
            f"{p}.z.latch:",
            f"  %{p}.z.next = add nuw nsw i32 %{p}.z, 1",
            f"  %{p}.z.more = icmp ult i32 %{p}.z.next, %block_dim.z",
            f"  br i1 %{p}.z.more, label %{p}.z.head, label %{p}.next",
            f"{p}.next:",
            *(self._stop_if_failed(p) if entrance.exits != (END,) else ()),
            *_go_on(p, entrance.exits),
        )

    def _line_marks(self, entrance: Entrance) -> tuple[str, ...]:
        """Return an instruction for each line that is first reached from here.

        Of the loops that the compiler makes of a row, for vectors and for the rest, only one may run,
        and a debugger that finds a line in several stops in the first of them.
        """
        found = {
            self._metadata.lines[location]: None
            for leaf in leaves_of(entrance.variant)
            for line in leaf.region.instructions
            for location in _LOCATION.findall(line)
            if location in self._metadata.lines
        }
        new = [location for location in found if location not in self._marked]
        self._marked.update(new)
        return tuple(f'  call void asm sideeffect "nop", ""(){location}' for location in new)

    def _stop_if_failed(self, prefix: str) -> tuple[str, ...]:
        """End the block after a failed assertion, when all its threads have come to the barrier."""
        if not self._region.can_fail:
            return ()
        p = f"{prefix}.failed"
        return (
            f"  %{p} = call i32 @mo_cpu_has_failed(ptr %block){self._metadata.location}",
            f"  %{p}.is = icmp ne i32 %{p}, 0",
            f"  br i1 %{p}.is, label %done, label %{p}.not",
            f"{p}.not:",
        )

    @property
    def _loop(self) -> str:
        return f"s{self._entrance.number}"

    def _variant(self, variant: Variant, q: str, ranges: Ranges, done: str) -> tuple[str, ...]:
        if isinstance(variant, Leaf):
            return self._leaf(variant, q, ranges, done)
        if isinstance(variant, Choice):
            return self._choice(variant, q, ranges, done)
        return self._cut(variant, q, ranges, done)

    def _choice(self, choice: Choice, q: str, ranges: Ranges, done: str) -> tuple[str, ...]:
        found = SliceWriter(choice.region, f"{q}.c", self._loop).definition(choice.condition)
        if found is None:
            msg = f"the condition {choice.condition} cannot be evaluated for a row"
            raise ValueError(msg)
        return (
            *found.lines,
            f"  %{q}.if = freeze i1 {found.value}",
            f"  br i1 %{q}.if, label %{q}t, label %{q}f",
            f"{q}t:",
            *self._variant(choice.then, f"{q}t.", ranges, done),
            f"{q}f:",
            *self._variant(choice.other, f"{q}f.", ranges, done),
        )

    def _cut(self, cut: Cut, q: str, ranges: Ranges, done: str) -> tuple[str, ...]:
        """First the threads for which the comparison holds, then the others of the row."""
        lines, holds, others = cut_ranges(cut, q, self._loop)
        first, second = (cut.other, cut.then) if cut.is_negated else (cut.then, cut.other)
        first_lines, first_ranges = intersect(ranges, holds, f"{q}t")
        second_lines, second_ranges = intersect(ranges, others, f"{q}f")
        return (
            *lines,
            *first_lines,
            *second_lines,
            *self._variant(first, f"{q}t.", first_ranges, f"{q}f"),
            f"{q}f:",
            *self._variant(second, f"{q}f.", second_ranges, done),
        )

    def _leaf(self, leaf: Leaf, q: str, ranges: Ranges, done: str) -> tuple[str, ...]:
        if len(ranges.pairs) == 1:
            low, high = ranges.pairs[0]
            return self._row(leaf, q, (low, high), done)
        lines = [f"  br label %{q}.ranges", f"{q}.ranges:", f"  br label %{q}.range", f"{q}.range:"]
        lines.append(f"  %{q}.i = phi i32 [ 0, %{q}.ranges ], [ %{q}.i.next, %{q}.after ]")
        (low, high), *others = ranges.pairs
        for number, (other_low, other_high) in enumerate(others, 1):
            lines += [
                f"  %{q}.is{number} = icmp eq i32 %{q}.i, {number}",
                f"  %{q}.l{number} = select i1 %{q}.is{number}, i32 {other_low}, i32 {low}",
                f"  %{q}.h{number} = select i1 %{q}.is{number}, i32 {other_high}, i32 {high}",
            ]
            low, high = f"%{q}.l{number}", f"%{q}.h{number}"
        return (
            *lines,
            *self._row(leaf, q, (low, high), f"{q}.after"),
            f"{q}.after:",
            f"  %{q}.i.next = add nuw nsw i32 %{q}.i, 1",
            f"  %{q}.i.more = icmp ult i32 %{q}.i.next, {len(ranges.pairs)}",
            f"  br i1 %{q}.i.more, label %{q}.range, label %{done}",
        )

    def _row(self, leaf: Leaf, q: str, ends: tuple[str, str], done: str) -> tuple[str, ...]:
        low, high = ends
        return (
            f"  %{q}.any = icmp ult i32 {low}, {high}",
            f"  br i1 %{q}.any, label %{q}.pre, label %{done}",
            f"{q}.pre:",
            f"  br label %{q}.body",
            f"{q}.body:",
            f"  %{q}.x = phi i32 [ {low}, %{q}.pre ], [ %{q}.x.next, %{q}.body ]",
            f"  %{q}.linear = add nuw nsw i32 %{self._loop}.first, %{q}.x",
            *fill_thread_context(q, self._loop),
            self._call(leaf.region),
            f"  %{q}.x.next = add nuw nsw i32 %{q}.x, 1",
            f"  %{q}.x.more = icmp ult i32 %{q}.x.next, {high}",
            f"  br i1 %{q}.x.more, label %{q}.body, label %{q}.out{self._metadata.loop}",
            f"{q}.out:",
            *self._leave(leaf.region, q, ends),
            f"  br label %{done}",
        )

    def _call(self, known: Region) -> str:
        region, entrance = self._region, self._entrance
        passed = region.passed.values(entrance.live)
        known_here = region.conditions.values(known.assumed)
        operands = [
            *("ptr %item", f"i32 {entrance.number}", *self._operands),
            *(
                f"{type_} {f'%{self._loop}.u{passed[n].offset}' if n in passed else 'poison'}"
                for n, type_ in enumerate(region.passed.types)
            ),
            f"i1 {str(len(known.exits) > 1).lower()}",
        ]
        for n in range(len(region.conditions.types)):
            holds = n in known_here and known.assumed[known_here[n]]
            operands += [f"i1 {str(n in known_here).lower()}", f"i1 {str(holds).lower()}"]
        marks = f"{self._metadata.access_group}{self._metadata.location}"
        return f"  call void {symbol(region.function.name)}({', '.join(operands)}){marks}"

    def _leave(self, known: Region, q: str, ends: tuple[str, str]) -> list[str]:
        """Keep what the threads share at the next entrance, and which one it is."""
        lines: list[str] = []
        for slot, places in uniform_exits(self._region.entrances, known).items():
            if slot.value in self._region.in_memory:
                value = f"%{q}.m{slot.offset}"
                address = self._address_of_first(slot.type, slot.offset, value, ends[0], lines)
                align = size_of(slot.type)[1]
                lines.append(f"  {value} = load {slot.type}, ptr {address}, align {align}")
            else:
                writer = SliceWriter(known, f"{q}.o{slot.offset}.", self._loop)
                found = writer.slice(slot.value, places)
                lines += found.lines if found else ()
                value = found.value if found else "poison"
            lines.append(f"  store {slot.type} {value}, ptr {_variable(slot)}")
        if len(self._entrance.exits) > 1:
            number = str(known.exits[0])
            if len(known.exits) > 1:
                number = self._agreed_entrance(f"{q}.next", ends, lines)
            lines.append(f"  store i32 {number}, ptr %to")
        return lines

    def _agreed_entrance(self, name: str, ends: tuple[str, str], lines: list[str]) -> str:
        """Ask the runtime where all threads of the row go; it ends the program if not to one."""
        low, high = ends
        offset = self._region.next_offset
        address = self._address_of_first("i32", offset, f"%{name}", low, lines)
        operands = f"ptr %block, ptr {address}, i32 %{name}.count, i32 %{name}.before"
        places = symbol(places_name(self._region.function.name))
        operands += f", ptr {places}"
        lines += [
            f"  %{name}.count = sub i32 {high}, {low}",
            f"  %{name}.before = load i32, ptr %to",
            f"  %{name} = call i32 @mo_cpu_agree({operands}){self._metadata.location}",
        ]
        return f"%{name}"

    def _address_of_first(
        self, type_: str, offset: int, name: str, low: str, lines: list[str]
    ) -> str:
        """Return where the first thread of the range left a value."""
        lines += [
            f"  {name}.at = getelementptr inbounds i8, ptr %state, i64 {offset}",
            f"  {name}.n = add nuw nsw i32 %{self._loop}.first, {low}",
            f"  {name}.own = getelementptr inbounds {type_}, ptr {name}.at, i32 {name}.n",
        ]
        return f"{name}.own"


def _go_on(prefix: str, exits: tuple[int, ...]) -> tuple[str, ...]:
    labels = {number: f"%s{number}.begin" if number else "%done" for number in exits}
    if len(exits) == 1:
        return (f"  br label {labels[exits[0]]}",)
    first, *others = exits
    cases = " ".join(f"i32 {number}, label {labels[number]}" for number in others)
    return (
        f"  %{prefix}.to = load i32, ptr %to, align 4",
        f"  switch i32 %{prefix}.to, label {labels[first]} [{cases}]",
    )
