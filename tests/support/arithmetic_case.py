"""Operations of arith and math with exact results: bits of the arguments, bits of the results."""

from __future__ import annotations

import ctypes
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from typing import NamedTuple

from support.binary_format import BF16, F16, F32, F64

LANES = 4
# The bytes of the slot of each argument and result, and of the arguments of a call.
SLOT, FRAME = 64, 256
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
# A row of arguments, and the results; NaN is any.
Row = tuple[tuple[int, ...], tuple[int, ...]]


class Case(NamedTuple):
    """An operation on %a, %b and %c of these types, which defines %r and %s.

    `$` before a type in the body is replaced by nothing or makes it a vector. `since` is a release of LLVM.
    """

    name: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    body: str
    rows: tuple[Row, ...]
    is_scalar: bool = False
    since: int = 19

    @property
    def needs_bfloat(self) -> bool:
        """Return whether a type of it is bf16."""
        return "bf16" in self.body or "bf16" in (*self.takes, *self.gives)


class Function(NamedTuple):
    """A function of a case, on scalars or on vectors."""

    name: str
    case: Case
    lanes: int

    @property
    def text(self) -> str:
        """Return the definition, with a pointer to the arguments and one to the results."""
        lines = [f"func.func @{self.name}(%in: !llvm.ptr, %out: !llvm.ptr) {{"]
        for place, (name, kind) in enumerate(zip("abc", self.case.takes, strict=False)):
            lines += [
                f"%p{name} = llvm.getelementptr %in[{SLOT * place}] : (!llvm.ptr) -> !llvm.ptr, i8",
                f"%w{name} = llvm.load %p{name} : !llvm.ptr -> {self._shaped(stored(kind))}",
                f"%{name} = {self._cast(f'%w{name}', stored(kind), kind)}",
            ]
        lines += [re.sub(r"\$(\w+)", lambda match: self._shaped(match[1]), self.case.body)]
        for place, (name, kind) in enumerate(zip("rs", self.case.gives, strict=False)):
            lines += [
                f"%p{name} = llvm.getelementptr %out[{SLOT * place}] : (!llvm.ptr) -> !llvm.ptr, i8",
                f"%w{name} = {self._cast(f'%{name}', kind, stored(kind))}",
                f"llvm.store %w{name}, %p{name} : {self._shaped(stored(kind))}, !llvm.ptr",
            ]
        return "\n".join([*lines, "return", "}", ""])

    @property
    def calls(self) -> Iterator[tuple[Row, ...]]:
        """Yield the rows of each call. The last row is repeated."""
        rows = self.case.rows
        for start in range(0, len(rows), self.lanes):
            chosen = rows[start : start + self.lanes]
            yield chosen + chosen[-1:] * (self.lanes - len(chosen))

    def arguments(self, rows: tuple[Row, ...]) -> bytes:
        """Return the arguments of a call in memory."""
        slots = (
            b"".join(row[0][place].to_bytes(size_of(kind), "little") for row in rows).ljust(
                SLOT, b"\0"
            )
            for place, kind in enumerate(self.case.takes)
        )
        return b"".join(slots).ljust(FRAME, b"\0")

    def wrong(self, rows: tuple[Row, ...], results: bytes) -> Iterator[tuple[str, Row, int]]:
        """Yield the rows of a call whose results are wrong, with the result."""
        for place, kind in enumerate(self.case.gives):
            size = size_of(kind)
            for lane, row in enumerate(rows):
                start = SLOT * place + size * lane
                found = int.from_bytes(results[start : start + size], "little")
                if not is_same(kind, found, row[1][place]):
                    yield self.name, row, found

    def _shaped(self, kind: str) -> str:
        return f"vector<{self.lanes}x{kind}>" if self.lanes > 1 else kind

    def _cast(self, value: str, source: str, target: str) -> str:
        """Return an operation that converts between the type of a value and that in memory."""
        types = f"{self._shaped(source)} to {self._shaped(target)}"
        if "index" in (source, target):
            return f"arith.index_cast {value} : {types}"
        if source != target:
            return f"arith.{'trunci' if target == 'i1' else 'extui'} {value} : {types}"
        return f"llvm.bitcast {value} : {types}"


class Frames:
    """Aligned memory for the arguments and results of calls."""

    def __init__(self, count: int) -> None:
        size = FRAME * count
        self._memory = ctypes.create_string_buffer(2 * size + SLOT)
        start = -(-ctypes.addressof(self._memory) // SLOT) * SLOT
        self._in, self._out = ((ctypes.c_char * size).from_address(start + at) for at in (0, size))

    def call(self, function: Callable[[int, int], None], arguments: Iterable[bytes]) -> bytes:
        """Return the results for these arguments."""
        given = b"".join(arguments)
        ctypes.memmove(self._in, given, len(given))
        function(ctypes.addressof(self._in), ctypes.addressof(self._out))
        return self._out.raw


def functions_of(cases: Iterable[Case]) -> tuple[Function, ...]:
    """Return the functions of the cases."""
    return tuple(
        Function(f"{case.name.replace('.', '_')}_{lanes}", case, lanes)
        for case in cases
        for lanes in ((1,) if case.is_scalar else (1, LANES))
    )


def stored(kind: str) -> str:
    """Return the type by which a type is represented in memory."""
    return {"i1": "i8", "index": "i64"}.get(kind, kind)


@cache
def size_of(kind: str) -> int:
    """Return the bytes of a scalar in memory."""
    return width(stored(kind)) // 8


def width(kind: str) -> int:
    """Return the number of bits of a scalar type."""
    return 64 if kind == "index" else int(kind.lstrip("bfi"))


def decoded(kind: str, bits: int) -> float:
    """Return the number that the bits of a floating-point type represent."""
    if kind == "bf16":
        return decoded("f32", bits << 16)
    code = FORMATS[kind].code
    return float(struct.unpack(f"<{code}", bits.to_bytes(width(kind) // 8, "little"))[0])


def encoded(kind: str, value: float) -> int:
    """Return the bits of a number that the type represents exactly."""
    if kind == "bf16":
        return encoded("f32", value) >> 16
    return int.from_bytes(struct.pack(f"<{FORMATS[kind].code}", value), "little")


def rounded(kind: str, value: Fraction | float, mode: str = "rn", zero: float = 0.0) -> int:
    """Return the bits of the number next to a value; infinity and NaN are kept."""
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value) or value == 0:
            return encoded(kind, value)
        value = Fraction(value)
    form = FORMATS[kind]
    return encoded(kind, form.rounded(value, mode, zero) if value else zero)


def is_nan(kind: str, bits: int) -> bool:
    """Return whether bits of a type are a NaN."""
    return kind in FORMATS and math.isnan(decoded(kind, bits))


def is_same(kind: str, found: int, wanted: int) -> bool:
    """Return whether bits are equal, or both a NaN."""
    return found == wanted or (is_nan(kind, found) and is_nan(kind, wanted))


def floats(kind: str) -> tuple[float, ...]:
    """Return numbers of a type at the edges: zeros, subnormal numbers, middles of integers, the largest, NaN."""
    form = FORMATS[kind]
    tiny, normal = 2.0 ** (form.least - form.digits + 1), 2.0**form.least
    largest = (2 - 2.0 ** (1 - form.digits)) * 2.0**form.greatest
    sizes = (0.0, tiny, normal - tiny, normal, 1.0, 1 + 2.0 ** (1 - form.digits), 2.5, largest, math.inf)  # fmt: skip
    return (*sizes, *(-one for one in sizes), math.nan)


def integers(kind: str) -> tuple[int, ...]:
    """Return bits of an integer type at the edges."""
    bits = width(kind)
    found = (0, 1, 2, 3, 7, 1 << bits - 1, (1 << bits - 1) - 1, (1 << bits - 1) + 1, -1, -2, -3, -7)
    return tuple(dict.fromkeys(one % (1 << bits) for one in found))


def signed(kind: str, bits: int) -> int:
    """Return the signed number that bits represent."""
    return bits - (bits >> width(kind) - 1 << width(kind))


def float_rows(kind: str, count: int, exact: Callable[..., int | None]) -> Iterator[Row]:
    """Yield a row for each choice of arguments; `exact` returns None for an undefined result."""
    for values in product(floats(kind), repeat=count):
        made = exact(*values)
        if made is not None:
            yield tuple(encoded(kind, one) for one in values), (made,)


def sign_key(value: float) -> tuple[float, float]:
    """Return a key that orders -0 before +0."""
    return value, math.copysign(1, value)
