"""Rows of threads cut where a condition changes, so that each piece runs without masks.

`if (i < n)` with i = base + x holds for a first part of a row and for no other thread; conditions
that the whole block shares are decided before the row. What is left are plain loops.
"""

from __future__ import annotations

from msgspec import Struct

from mlir_offload.translate.cpu.path import Region
from mlir_offload.translate.cpu.slice import (
    Comparison,
    SliceWriter,
    depends_on_x,
    grows_with_x,
    parse_comparison,
)

_SWAPPED = {"ult": "ugt", "ule": "uge", "ugt": "ult", "uge": "ule"}
# Each leaf is a copy of the region's code, which the compiler has to optimise.
_MOST_LEAVES = 6
_MOST_COPIED_BLOCKS = 120


class Leaf(Struct, frozen=True):
    """Run the threads with what is known."""

    region: Region


class Choice(Struct, frozen=True):
    """A condition that the row shares; if not `is_of_row`, the whole block does."""

    condition: str
    region: Region
    then: Variant
    other: Variant
    is_of_row: bool


class Cut(Struct, frozen=True):
    """A comparison that holds for some threads of the row.

    `first` is x plus what the row shares; the predicate is `ult`, `ule` or `eq`, after both sides
    were moved by half the range if `is_signed`. `then` is for where it holds, or, if `is_negated`,
    for where it does not.
    """

    condition: str
    comparison: Comparison
    is_signed: bool
    is_negated: bool
    region: Region
    then: Variant
    other: Variant


Variant = Leaf | Choice | Cut


def build_variants(region: Region) -> Variant:
    """Decide conditions in the order in which the region meets them; the larger, the fewer."""
    return _build(region, min(_MOST_LEAVES, _MOST_COPIED_BLOCKS // region.block_count))


def _build(region: Region, leaves: int) -> Variant:
    if leaves > 1:
        for condition in region.open_conditions():
            then = region.assuming(condition, holds=True)
            other = region.assuming(condition, holds=False)
            found = SliceWriter(region).definition(condition)
            if found is not None and not found.needs_x:
                return Choice(
                    condition,
                    region,
                    _build(then, leaves - leaves // 2),
                    _build(other, leaves // 2),
                    found.needs_row,
                )
            cut = _comparison_of(region, condition)
            if cut is not None:
                comparison, is_signed, is_negated = cut
                return Cut(
                    condition,
                    comparison,
                    is_signed,
                    is_negated,
                    region,
                    _build(then, leaves - leaves // 2),
                    _build(other, leaves // 2),
                )
    return Leaf(region)


def _comparison_of(region: Region, condition: str) -> tuple[Comparison, bool, bool] | None:
    found = parse_comparison(region.code.lines[condition])
    if found is None or found.type not in {"i32", "i64"}:
        return None
    first, second, predicate = found.first, found.second, found.predicate
    is_signed = predicate.startswith("s")
    predicate = predicate.replace("s", "u", 1) if is_signed else predicate
    place = region.place_of(condition)
    if not grows_with_x(region, first, place):
        first, second = second, first
        predicate = _SWAPPED.get(predicate, predicate)
    if not grows_with_x(region, first, place) or depends_on_x(region, second, place):
        return None
    is_negated = predicate in {"uge", "ugt", "ne"}
    predicate = {"uge": "ult", "ugt": "ule", "ne": "eq"}.get(predicate, predicate)
    return Comparison(predicate, found.type, first, second), is_signed, is_negated


def parts_ways(variant: Variant) -> bool:
    """Say whether some threads of a block end, or wait at another barrier, for a known reason."""
    if isinstance(variant, Leaf):
        return False
    if parts_ways(variant.then) or parts_ways(variant.other):
        return True
    if isinstance(variant, Choice) and not variant.is_of_row:
        return False
    exits = [
        {number for leaf in leaves_of(branch) for number in leaf.region.exits}
        for branch in (variant.then, variant.other)
    ]
    return exits[0] != exits[1]


def leaves_of(variant: Variant) -> list[Leaf]:
    """Return the leaves in the order in which they are written."""
    if isinstance(variant, Leaf):
        return [variant]
    return [*leaves_of(variant.then), *leaves_of(variant.other)]


def conditions_of(variant: Variant) -> list[str]:
    """Return the conditions that the leaves assume."""
    if isinstance(variant, Leaf):
        return []
    return [variant.condition, *conditions_of(variant.then), *conditions_of(variant.other)]


class Ranges(Struct, frozen=True):
    """Values of x: pairs of `from` and `to`, the latter excluded."""

    pairs: tuple[tuple[str, str], ...]


def cut_ranges(cut: Cut, prefix: str, loop: str) -> tuple[tuple[str, ...], Ranges, Ranges]:
    """Return instructions, and the ranges in which the comparison holds and does not.

    Exact for all operands: from x = 0 on the left side grows by one, and may start again at zero
    (`%w` threads come before that).
    """
    place = [cut.region.place_of(cut.condition)]
    left = SliceWriter(cut.region, f"{prefix}.s", loop, "0").slice(cut.comparison.first, place)
    right = SliceWriter(cut.region, f"{prefix}.t", loop).slice(cut.comparison.second, place)
    if left is None or right is None:
        msg = f"the comparison {cut.condition} cannot be evaluated for a row"
        raise ValueError(msg)
    t, p = cut.comparison.type, f"%{prefix}"
    lines = [*left.lines, *right.lines]
    start, bound = left.value, right.value
    if cut.is_signed:
        half = -(1 << (int(t[1:]) - 1))
        lines += [f"  {p}.ls = add {t} {start}, {half}", f"  {p}.rs = add {t} {bound}, {half}"]
        start, bound = f"{p}.ls", f"{p}.rs"
    lines += [
        f"  {p}.start = freeze {t} {start}",
        f"  {p}.bound = freeze {t} {bound}",
        f"  {p}.n = {f'zext i32 %block_dim.x to {t}' if t != 'i32' else 'add i32 %block_dim.x, 0'}",
        f"  {p}.d = sub {t} {p}.bound, {p}.start",
    ]
    if cut.comparison.predicate == "eq":
        lines += [
            f"  {p}.a = call {t} @llvm.umin.{t}({t} {p}.d, {t} {p}.n)",
            f"  {p}.a1 = add {t} {p}.a, 1",
            f"  {p}.b = call {t} @llvm.umin.{t}({t} {p}.a1, {t} {p}.n)",
        ]
        narrow, (a, b) = _narrow(prefix, t, ("a", "b"))
        return (*lines, *narrow), Ranges(((a, b),)), Ranges((("0", a), (b, "%block_dim.x")))
    lines += _ordered(p, t, is_inclusive=cut.comparison.predicate == "ule")
    narrow, (a, w, c) = _narrow(prefix, t, ("a", "w", "c"))
    return (
        (*lines, *narrow),
        Ranges((("0", a), (w, c))),
        Ranges(((a, w), (c, "%block_dim.x"))),
    )


def _ordered(p: str, t: str, *, is_inclusive: bool) -> list[str]:
    """Find `%a` (end of the first run that holds), `%w` (restart at zero), `%c` (end of the second)."""
    lines = [
        f"  {p}.neg = sub {t} 0, {p}.start",
        f"  {p}.is0 = icmp eq {t} {p}.start, 0",
        f"  {p}.min = call {t} @llvm.umin.{t}({t} {p}.neg, {t} {p}.n)",
        f"  {p}.w = select i1 {p}.is0, {t} {p}.n, {t} {p}.min",
        f"  {p}.left = sub {t} {p}.n, {p}.w",
    ]
    if is_inclusive:
        return [
            *lines,
            f"  {p}.some = icmp uge {t} {p}.bound, {p}.start",
            f"  {p}.w1 = sub {t} {p}.w, 1",
            f"  {p}.m = call {t} @llvm.umin.{t}({t} {p}.d, {t} {p}.w1)",
            f"  {p}.m1 = add {t} {p}.m, 1",
            f"  {p}.a = select i1 {p}.some, {t} {p}.m1, {t} 0",
            f"  {p}.again = icmp ne {t} {p}.left, 0",
            f"  {p}.l1 = sub {t} {p}.left, 1",
            f"  {p}.k = call {t} @llvm.umin.{t}({t} {p}.bound, {t} {p}.l1)",
            f"  {p}.k1 = add {t} {p}.k, 1",
            f"  {p}.k2 = select i1 {p}.again, {t} {p}.k1, {t} 0",
            f"  {p}.c = add {t} {p}.w, {p}.k2",
        ]
    return [
        *lines,
        f"  {p}.some = icmp ugt {t} {p}.bound, {p}.start",
        f"  {p}.m = call {t} @llvm.umin.{t}({t} {p}.d, {t} {p}.w)",
        f"  {p}.a = select i1 {p}.some, {t} {p}.m, {t} 0",
        f"  {p}.k = call {t} @llvm.umin.{t}({t} {p}.bound, {t} {p}.left)",
        f"  {p}.c = add {t} {p}.w, {p}.k",
    ]


def _narrow(prefix: str, type_: str, names: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    if type_ == "i32":
        return [], tuple(f"%{prefix}.{name}" for name in names)
    lines = [f"  %{prefix}.{name}32 = trunc {type_} %{prefix}.{name} to i32" for name in names]
    return lines, tuple(f"%{prefix}.{name}32" for name in names)


def intersect(first: Ranges, second: Ranges, prefix: str) -> tuple[tuple[str, ...], Ranges]:
    """Return instructions for the ranges that are in both; those of `first` do not overlap."""
    if first.pairs == (("0", "%block_dim.x"),):
        return (), second
    lines: list[str] = []
    pairs: list[tuple[str, str]] = []
    for low, high in first.pairs:
        for from_, to in second.pairs:
            n = len(pairs)
            lines += [
                f"  %{prefix}.lo{n} = call i32 @llvm.umax.i32(i32 {low}, i32 {from_})",
                f"  %{prefix}.hi{n} = call i32 @llvm.umin.i32(i32 {high}, i32 {to})",
            ]
            pairs.append((f"%{prefix}.lo{n}", f"%{prefix}.hi{n}"))
    return tuple(lines), Ranges(tuple(pairs))
