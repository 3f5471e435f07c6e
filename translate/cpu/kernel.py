"""A kernel split at barriers, as its body and the code around it both see it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.parameter import SharedParameters
from mlir_offload.translate.cpu.path import Place, Region
from mlir_offload.translate.cpu.text import Function
from mlir_offload.translate.cpu.variant import Variant, leaves_of

BARRIER = ir_pattern("call void @mo.barrier(")
BARRIER_PLACE = ir_pattern("@mo.at`number`")
"""The string that a barrier passes, which says where it is in the source."""
FAILURE = ir_pattern("call void @mo_cpu_`name:assertfail|note_failure``arguments:(`(`rest`)`)`")
"""A failed assertion: ends the program; in the kernel itself noted, and its thread leaves the kernel."""
END = 0


class Slot(Struct, frozen=True):
    """A value that waits in memory: its type and the offset of its array in the block's state."""

    value: str
    type: str
    offset: int
    is_uniform: bool


class Entrance(Struct, frozen=True):
    """A place where the function is entered: behind barrier `number`, or 0 for its beginning.

    `live` is what must be brought back from memory or passed; `variant` says how the rows are run.
    """

    number: int
    live: tuple[Slot, ...]
    variant: Variant

    @property
    def has_choice(self) -> bool:
        """Say whether each thread must tell where it goes."""
        return any(len(leaf.region.exits) > 1 for leaf in leaves_of(self.variant))

    @property
    def exits(self) -> tuple[int, ...]:
        """Return the barriers that come next, END for the end of the kernel."""
        return tuple(sorted({n for leaf in leaves_of(self.variant) for n in leaf.region.exits}))


class BarrierSplitKernel(Struct, frozen=True):
    """The split function and what the code around it has to know.

    `places` are strings of the barriers, by number. The function takes the context, the number of the entrance, the kernel's arguments, the uniform
    values of the entrance in their `passed` parameters, whether to leave the number of the next
    entrance at `next_offset`, and for each of the parameters of `conditions` whether it is known and
    what it is. Uniform values `in_memory` are left there by each thread; the code around the function computes the others itself. It `can_fail` with assertions.
    """

    function: Function
    arguments: tuple[str, ...]
    places: tuple[str, ...]
    entrances: tuple[Entrance, ...]
    uniform: tuple[Slot, ...]
    in_memory: frozenset[str]
    passed: SharedParameters[Slot]
    conditions: SharedParameters[str]
    next_offset: int
    state_bytes: int
    has_shared_arrays: bool
    can_fail: bool


def uniform_exits(entrances: Sequence[Entrance], region: Region) -> dict[Slot, list[Place]]:
    """Return the uniform values that are needed behind a region, and where it ends for each.

    The number of an entrance is its place in the sequence.
    """
    found: dict[Slot, list[Place]] = {}
    for number in region.exits:
        if number != END:
            places = region.exit_places(number)
            for slot in entrances[number].live:
                if slot.is_uniform:
                    found.setdefault(slot, []).extend(places)
    return found


def argument_name(number: int) -> str:
    """Return the parameter that brings a uniform value."""
    return f"%mo.u{number}"
