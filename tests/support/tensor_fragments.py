"""Matrix fragments of mma.sync according to the PTX ISA, number formats, and reference products.

Every layout follows the section on its shape: the position of element `i` of lane `t + 4 g`.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Place = tuple[int, int]
Layout = Callable[[int, int, int], Place]
Matrix = list[list[float]]
BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s8": 8, "u8": 8, "s4": 4, "u4": 4,
    "b1": 1, "s32": 32, "e4m3": 8, "e5m2": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mma:
    """A variant of mma.sync: its name in LLVM, its shape, the elements of a, b, c and d, and the layouts.

    `groups` groups of lanes compute a product each.
    """

    name: str
    shape: tuple[int, int, int]
    elements: tuple[str, str, str, str]
    layouts: tuple[Layout, Layout, Layout]
    groups: int = 1


def accumulator(g: int, t: int, i: int) -> Place:
    """Return the position of element `i` of c and d, for 8 columns."""
    return (g + 8 * (i // 2), 2 * t + i % 2)


# If a has several registers, the second, fourth, ... contain rows 8 to 15.
_LAYOUTS: dict[str, tuple[Layout, Layout]] = {
    "m8n8k4.f64": (lambda g, t, _: (g, t), lambda g, t, _: (t, g)),
    "m16n8k4.f64": (lambda g, t, i: (g + 8 * i, t), lambda g, t, _: (t, g)),
    "m16n8k8.f64": (
        lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)),
        lambda g, t, i: (t + 4 * i, g),
    ),
    "m16n8k16.f64": (
        lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)),
        lambda g, t, i: (t + 4 * i, g),
    ),
    "m16n8k4.tf32": (lambda g, t, i: (g + 8 * i, t), lambda g, t, _: (t, g)),
    "m16n8k8.tf32": (
        lambda g, t, i: (g if i in {0, 2} else g + 8, t if i in {0, 1} else t + 4),
        lambda g, t, i: (t if i == 0 else t + 4, g),
    ),
    "m16n8k8.16": (
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
        lambda g, t, i: (t * 2 + i, g),
    ),
    "m16n8k16.16": (
        lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (8 if i >= 4 else 0)),
        lambda g, t, i: (t * 2 + (i & 1) + (8 if i >= 2 else 0), g),
    ),
    "m8n8k16.8": (lambda g, t, i: (g, t * 4 + i), lambda g, t, i: (t * 4 + i, g)),
    "m16n8k16.8": (
        lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
        lambda g, t, i: (t * 4 + i, g),
    ),
    "m16n8k32.8": (
        lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (16 if i >= 8 else 0)),
        lambda g, t, i: (t * 4 + (i & 3) + (16 if i >= 4 else 0), g),
    ),
    "m8n8k32.4": (lambda g, t, i: (g, t * 8 + i), lambda g, t, i: (t * 8 + i, g)),
    "m16n8k32.4": (
        lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7)),
        lambda g, t, i: (t * 8 + i, g),
    ),
    "m16n8k64.4": (
        lambda g, t, i: (g if i < 8 or 16 <= i < 24 else g + 8, t * 8 + (i & 7) + (32 if i >= 16 else 0)),
        lambda g, t, i: (t * 8 + (i & 7) + (32 if i >= 8 else 0), g),
    ),
    "m8n8k128.1": (lambda g, t, i: (g, t * 32 + i), lambda g, t, i: (t * 32 + i, g)),
    "m16n8k128.1": (
        lambda g, t, i: (g if i < 32 else g + 8, t * 32 + (i & 31)),
        lambda g, t, i: (t * 32 + i, g),
    ),
    "m16n8k256.1": (
        lambda g, t, i: (
            g if i < 32 or 64 <= i < 96 else g + 8,
            t * 32 + (i & 31) + (128 if i >= 64 else 0),
        ),
        lambda g, t, i: (t * 32 + (i & 31) + (128 if i >= 32 else 0), g),
    ),
}  # fmt: skip


def _forms() -> Iterator[Mma]:
    for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"):
        yield _form(f"{shape}.row.col.f64", f"{shape}.f64", ("f64", "f64", "f64", "f64"))
    for shape in ("m16n8k4", "m16n8k8"):
        yield _form(f"{shape}.row.col.tf32", f"{shape}.tf32", ("tf32", "tf32", "f32", "f32"))
    for shape in ("m16n8k8", "m16n8k16"):
        yield _form(f"{shape}.row.col.bf16", f"{shape}.16", ("bf16", "bf16", "f32", "f32"))
        for sum_ in ("f16", "f32"):
            elements = ("f16", "f16", sum_, sum_)
            yield _form(f"{shape}.row.col.{sum_}.{sum_}", f"{shape}.16", elements)
    yield from _integer_forms()
    for a, b, sum_ in (("e4m3", "e5m2", "f32"), ("e5m2", "e4m3", "f16")):
        name = f"m16n8k32.row.col.{sum_}.{a}.{b}.{sum_}"
        yield _form(name, "m16n8k32.8", (a, b, sum_, sum_))


def _integer_forms() -> Iterator[Mma]:
    for shape, bits in (("m8n8k16", 8), ("m16n8k16", 8), ("m16n8k32", 8), ("m8n8k32", 4), ("m16n8k32", 4), ("m16n8k64", 4)):  # fmt: skip
        for a, b in (("s", "s"), ("u", "s"), ("s", "u")):
            types = f"{a}{bits}" if a == b else f"{a}{bits}.{b}{bits}"
            saturates = ".satfinite" if b == "u" else ""
            elements = (f"{a}{bits}", f"{b}{bits}", "s32", "s32")
            yield _form(f"{shape}.row.col{saturates}.{types}", f"{shape}.{bits}", elements)
    for shape in ("m8n8k128", "m16n8k128", "m16n8k256"):
        for operation in ("and", "xor"):
            name = f"{operation}.popc.{shape}.row.col.b1"
            yield _form(name, f"{shape}.1", ("b1", "b1", "s32", "s32"))


def _form(name: str, layout: str, elements: tuple[str, str, str, str]) -> Mma:
    m, n, k = (int(part) for part in layout.partition(".")[0].replace("m", "").replace("n", " ").replace("k", " ").split())  # fmt: skip
    return Mma(name, (m, n, k), elements, (*_LAYOUTS[layout], accumulator))


def _quartered_forms() -> Iterator[Mma]:
    """Yield mma.m8n8k4 of f16: lanes 4 q to 4 q + 3, and the same plus 16, compute product q."""
    for a in ("row", "col"):
        for b in ("row", "col"):
            for d, c in (("f16", "f16"), ("f32", "f16"), ("f32", "f32")):
                name = f"m8n8k4.{a}.{b}.{d}.{c}"
                yield Mma(name, (8, 8, 4), ("f16", "f16", c, d), _quartered(a, b), groups=4)


def _quartered(a: str, b: str) -> tuple[Layout, Layout, Layout]:
    def place_a(lane: int, _: int, i: int) -> Place:
        high = 4 if lane >= 16 else 0
        return (lane % 4 + high, i) if a == "row" else (i % 4 + high, lane % 4)

    def place_b(lane: int, _: int, i: int) -> Place:
        high = 4 if lane >= 16 else 0
        return (lane % 4, i + high) if b == "row" else (i, lane % 4 + high)

    return place_a, place_b, accumulator  # the last depends on the type: see `places`


FORMS = (*_forms(), *_quartered_forms())


def places(form: Mma, operand: int, lane: int) -> Iterator[tuple[int, Place]]:
    """Return the product and the position of each element of a, b, c or d (0 to 3) in a lane."""
    element = form.elements[operand]
    m, n, k = form.shape
    size = (m * k, k * n, m * n, m * n)[operand]
    layout = form.layouts[min(operand, 2)]
    if form.groups == 1:
        for i in range(size // 32):
            yield 0, layout(lane // 4, lane % 4, i)
        return
    group, high = lane % 16 // 4, 4 if lane >= 16 else 0
    for i in range(size * form.groups // 32):
        if operand < 2:
            yield group, layout(lane, 0, i)
        elif element == "f16":
            yield group, (lane % 4 + high, i)
        else:
            row = (lane & 1) + (i & 2) + high
            yield group, (row, (i & 4) + (lane & 2) + (i & 1))


def matrix_place(lane: int, i: int, *, is_transposed: bool) -> Place:
    """Return the row and column, in memory, of element `i` that ldmatrix loads into a lane."""
    row, column = lane // 4, lane % 4 * 2 + i
    return (column, row) if is_transposed else (row, column)


def encoded(value: float, element: str) -> int:
    """Return the bits of a number in the format."""
    if element in {"e4m3", "e5m2"}:
        return _FLOATS8[element][value]
    if element == "f16":
        return int.from_bytes(struct.pack("<e", value), "little")
    if element in {"f32", "tf32", "bf16"}:
        bits = int.from_bytes(struct.pack("<f", value), "little")
        return bits >> 16 if element == "bf16" else bits
    if element == "f64":
        return int.from_bytes(struct.pack("<d", value), "little")
    return int(value) & ((1 << BITS[element]) - 1)


def decoded(bits: int, element: str) -> float:
    """Return the number of the bits, in a format of sums."""
    format_ = {"f16": "<e", "f32": "<f", "f64": "<d", "s32": "<i"}[element]
    number: float = struct.unpack(format_, bits.to_bytes(BITS[element] // 8, "little"))[0]
    return number


def _floats8(exponent_bits: int, mantissa_bits: int) -> dict[float, int]:
    bias = (1 << (exponent_bits - 1)) - 1
    found = {}
    for bits in range(0x78):
        mantissa, exponent = bits & ((1 << mantissa_bits) - 1), bits >> mantissa_bits
        normal = 2.0 ** (exponent - bias) * (1 + mantissa / (1 << mantissa_bits))
        value = normal if exponent else 2.0 ** (1 - bias - mantissa_bits) * mantissa
        found[value], found[-value] = bits, bits | 0x80
    return found


_FLOATS8 = {"e4m3": _floats8(4, 3), "e5m2": _floats8(5, 2)}


def random_matrix(rows: int, columns: int, element: str, rng: random.Random) -> Matrix:
    """Return a matrix of numbers that are small enough for exact sums."""
    low, high = {"b1": (0, 1), "u8": (0, 255), "u4": (0, 15), "s8": (-128, 127), "s4": (-8, 7)}.get(
        element, (-4, 4)
    )
    return [[float(rng.randint(low, high)) for _ in range(columns)] for _ in range(rows)]


def product(a: Matrix, b: Matrix, c: Matrix, *, counts_differences: bool = False) -> Matrix:
    """Return a b + c; with `counts_differences`, the sum of differences (of bits) in place of products."""
    columns = list(zip(*b, strict=True))
    return [
        [
            start
            + sum(
                abs(x - y) if counts_differences else x * y
                for x, y in zip(row, column, strict=True)
            )
            for start, column in zip(starts, columns, strict=True)
        ]
        for row, starts in zip(a, c, strict=True)
    ]


def packed(form: Mma, operand: int, lane: int, matrices: list[Matrix]) -> bytes:
    """Return the registers of a lane."""
    bits = BITS[form.elements[operand]]
    total = count = 0
    for group, (row, column) in places(form, operand, lane):
        total |= encoded(matrices[group][row][column], form.elements[operand]) << (count * bits)
        count += 1
    return total.to_bytes(count * bits // 8, "little")


def unpacked(form: Mma, lane: int, registers: bytes, matrices: list[Matrix]) -> None:
    """Store the elements of d in a lane's registers into the matrices."""
    element = form.elements[3]
    size = BITS[element] // 8
    for i, (group, (row, column)) in enumerate(places(form, 3, lane)):
        bits = int.from_bytes(registers[i * size : (i + 1) * size], "little")
        matrices[group][row][column] = decoded(bits, element)
