"""Kernels whose threads store the results of operations, as text and with the expected results.

A `Probe` is a kernel. Each of its rows is one operation, whose result every thread stores. The expected
result, which the dialect defines, is computed for one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from math import prod

Dim3 = tuple[int, int, int]

# The conversion of each type to the 64 bits that are stored.
_STORED = {
    "index": ("arith.index_cast", "index", "i64"),
    "i1": ("arith.extui", "i1", "i64"),
    "i8": ("arith.extsi", "i8", "i64"),
    "i16": ("arith.extsi", "i16", "i64"),
    "i32": ("arith.extsi", "i32", "i64"),
    "f16": ("arith.fptosi", "f16", "i64"),
    "bf16": ("arith.fptosi", "bf16", "i64"),
    "f32": ("arith.fptosi", "f32", "i64"),
    "f64": ("arith.fptosi", "f64", "i64"),
}


@dataclass(frozen=True)
class Thread:
    """One thread of a launch: its block and thread IDs, and the sizes of grid and block."""

    block: Dim3
    thread: Dim3
    grid_dim: Dim3
    block_dim: Dim3
    warp: int = 32

    @cached_property
    def number(self) -> int:
        """Return its linear index in the block: x first, then y, then z."""
        (x, y, z), (width, height, _) = self.thread, self.block_dim
        return (z * height + y) * width + x

    @cached_property
    def lane(self) -> int:
        """Return its lane in the subgroup."""
        return self.number % self.warp

    @cached_property
    def lanes(self) -> range:
        """Return the linear indices, in the block, of the threads of its subgroup."""
        first = self.number - self.lane
        return range(first, min(first + self.warp, prod(self.block_dim)))


Expected = Callable[[Thread], int | None]


@dataclass(frozen=True, slots=True)
class Row:
    """One operation: `text` defines `%r$`, where `$` is its number. `expected` is None if undefined."""

    name: str
    text: str
    kind: str
    expected: Expected
    since: int = 19


@dataclass(frozen=True, slots=True)
class Probe:
    """One kernel, launched with blocks of several sizes, which are not known at compile time.

    `head` precedes its rows; `attributions` are its workgroup and private memrefs. With `knows_block`, it
    is compiled for its only block size. `warp` is the subgroup size.
    """

    name: str
    rows: Sequence[Row]
    blocks: Sequence[Dim3]
    grid: Dim3 = (1, 1, 1)
    head: str = ""
    attributions: str = ""
    dynamic: int = 0
    knows_block: bool = False
    warp: int = 32

    def of(self, release: int) -> Sequence[Row]:
        """Return the rows that an LLVM release supports."""
        return [row for row in self.rows if row.since <= release]

    def threads(self, block: Dim3) -> list[Thread]:
        """Return all threads, in the order in which they store."""
        return [
            Thread((bx, by, bz), (tx, ty, tz), self.grid, block, self.warp)
            for bz, by, bx in product(*map(range, reversed(self.grid)))
            for tz, ty, tx in product(*map(range, reversed(block)))
        ]


# The inputs of a thread, by its linear index: `$v` of every type, `$s` small ones, `$m` factors.
def given(number: int, kind: str) -> int:
    """Return the input of a thread, as a value of the type."""
    if kind in {"f16", "bf16"}:
        return (number * 37 + 11) % 7 - 3
    value = (number * 37 + 11) % 101 - 50
    return {"i64": value * (2**33 + 1), "f64": value * (2**36 + 1)}.get(kind, value)


def factor(number: int, kind: str) -> int:
    """Return the factor of a thread in a product: powers of two if the product must be exact."""
    if kind[0] == "i":
        return given(number, kind)
    return 2 if number % 32 == 0 else -1 if number % 3 == 0 else 1


_INPUTS = """
%c37 = arith.constant 37 : i32
%c11 = arith.constant 11 : i32
%n = arith.index_cast %number : index to i32
%scaled = arith.muli %n, %c37 : i32
%moved = arith.addi %scaled, %c11 : i32
%c101 = arith.constant 101 : i32
%c50 = arith.constant 50 : i32
%rest = arith.remui %moved, %c101 : i32
%v_i32 = arith.subi %rest, %c50 : i32
%v_i8 = arith.trunci %v_i32 : i32 to i8
%v_i16 = arith.trunci %v_i32 : i32 to i16
%long = arith.extsi %v_i32 : i32 to i64
%by33 = arith.constant 8589934593 : i64
%v_i64 = arith.muli %long, %by33 : i64
%v_f32 = arith.sitofp %v_i32 : i32 to f32
%by36 = arith.constant 68719476737 : i64
%long36 = arith.muli %long, %by36 : i64
%v_f64 = arith.sitofp %long36 : i64 to f64
%c7 = arith.constant 7 : i32
%c3 = arith.constant 3 : i32
%rest7 = arith.remui %moved, %c7 : i32
%small = arith.subi %rest7, %c3 : i32
%v_f16 = arith.sitofp %small : i32 to f16
%v_bf16 = arith.sitofp %small : i32 to bf16
%c0 = arith.constant 0 : i32
%c1 = arith.constant 1 : i32
%c2 = arith.constant 2 : i32
%cm1 = arith.constant -1 : i32
%c8 = arith.constant 8 : i32
%c32 = arith.constant 32 : i32
%rest32 = arith.remui %n, %c32 : i32
%is32 = arith.cmpi eq, %rest32, %c0 : i32
%rest3 = arith.remui %n, %c3 : i32
%is3 = arith.cmpi eq, %rest3, %c0 : i32
%sign = arith.select %is3, %cm1, %c1 : i32
%power = arith.select %is32, %c2, %sign : i32
%m_f16 = arith.sitofp %power : i32 to f16
%m_bf16 = arith.sitofp %power : i32 to bf16
%m_f32 = arith.sitofp %power : i32 to f32
%m_f64 = arith.sitofp %power : i32 to f64
%lane = gpu.lane_id
%l = arith.index_cast %lane : index to i32
%c5 = arith.constant 5 : i32
%is5 = arith.cmpi eq, %l, %c5 : i32
%nan = arith.constant 0x7FC00000 : f32
%nan_f32 = arith.select %is5, %nan, %v_f32 : f32
"""

_HOST = """func.func @{name}(%host: memref<?xi64>, %w: index, %h: index, %d: index) attributes {{llvm.emit_c_interface}} {{
  %shared = arith.constant {dynamic} : i32
  %zero = arith.constant 0 : index
  %size = memref.dim %host, %zero : memref<?xi64>
  %out = gpu.alloc (%size) : memref<?xi64>
  gpu.memcpy %out, %host : memref<?xi64>, memref<?xi64>
{sizes}
  gpu.launch_func @probes::@{name}_kernel blocks in (%g0, %g1, %g2) threads in (%b0, %b1, %b2)
    dynamic_shared_memory_size %shared args(%out : memref<?xi64>)
  gpu.memcpy %host, %out : memref<?xi64>, memref<?xi64>
  gpu.dealloc %out : memref<?xi64>
  return
}}
"""

_KERNEL = """gpu.func @{name}_kernel(%out: memref<?xi64>) {attributions} kernel {attributes} {{
{places}
    %z0 = arith.muli %tz, %sy : index
    %z1 = arith.addi %z0, %ty : index
    %z2 = arith.muli %z1, %sx : index
    %number = arith.addi %z2, %tx : index
    %z3 = arith.muli %bz, %gy : index
    %z4 = arith.addi %z3, %by : index
    %z5 = arith.muli %z4, %gx : index
    %z6 = arith.addi %z5, %bx : index
    %z7 = arith.muli %sx, %sy : index
    %threads = arith.muli %z7, %sz : index
    %z8 = arith.muli %z6, %threads : index
    %at = arith.addi %z8, %number : index
    %blocks = arith.constant {blocks} : index
    %total = arith.muli %threads, %blocks : index
{body}
    gpu.return
}}
"""
_PLACES = "\n".join(
    f"%{short}{axis} = gpu.{operation} {axis}"
    for short, operation in (
        ("t", "thread_id"),
        ("b", "block_id"),
        ("s", "block_dim"),
        ("g", "grid_dim"),
    )
    for axis in "xyz"
)


def text_of(probes: Sequence[Probe], release: int) -> str:
    """Return a program: functions that launch blocks of a given size, and one module of kernels.

    There is one module, because each module starts three tools.
    """
    kernels = "\n".join(_kernel_text(probe, release) for probe in probes)
    hosts = "\n".join(_host_text(probe) for probe in probes)
    return f"module attributes {{gpu.container_module}} {{\n{hosts}\ngpu.module @probes {{\n{kernels}\n}}\n}}\n"


def _host_text(probe: Probe) -> str:
    sizes = [f"  %g{axis} = arith.constant {size} : index" for axis, size in enumerate(probe.grid)]
    for axis, (size, given_size) in enumerate(zip(probe.blocks[0], "whd", strict=True)):
        known = f"arith.constant {size} : index"
        given_at_run_time = f"arith.addi %{given_size}, %zero : index"
        sizes.append(f"  %b{axis} = {known if probe.knows_block else given_at_run_time}")
    return _HOST.format(name=probe.name, sizes="\n".join(sizes), dynamic=probe.dynamic)


def _kernel_text(probe: Probe, release: int) -> str:
    rows = [_row_text(row, number) for number, row in enumerate(probe.of(release))]
    sizes = ", ".join(map(str, probe.blocks[0]))
    known = f"attributes {{known_block_size = array<i32: {sizes}>}}"
    return _KERNEL.format(
        name=probe.name,
        attributions=probe.attributions,
        attributes=known if probe.knows_block else "",
        places=_PLACES,
        blocks=prod(probe.grid),
        body="\n".join((_INPUTS, probe.head, *rows)),
    )


def _row_text(row: Row, number: int) -> str:
    stored = "%r$"
    lines = [f"// {row.name}", row.text]
    if row.kind in _STORED:
        operation, source, target = _STORED[row.kind]
        stored = "%stored$"
        lines.append(f"%stored$ = {operation} %r$ : {source} to {target}")
    lines += [
        f"%number$ = arith.constant {number} : index",
        "%first$ = arith.muli %number$, %total : index",
        "%place$ = arith.addi %first$, %at : index",
        f"memref.store {stored}, %out[%place$] : memref<?xi64>",
    ]
    return "\n".join(lines).replace("$", str(number))


def expected_of(probe: Probe, release: int, block: Dim3) -> dict[str, list[int | None]]:
    """Return the results of each row, thread by thread."""
    threads = probe.threads(block)
    found = {row.name: [row.expected(thread) for thread in threads] for row in probe.of(release)}
    assert len(found) == len(probe.of(release)), f"{probe.name}: rows of one name"
    return found


def wrapped(value: int, kind: str) -> int:
    """Return a number as a signed integer of the type; a floating-point number unchanged."""
    if kind[0] != "i":
        return value
    bits = int(kind[1:])
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _unsigned(value: int, kind: str) -> int:
    return value % (1 << int(kind[1:]))


_COMBINED: dict[str, Callable[[int, int, str], int]] = {
    "add": lambda a, b, _: a + b,
    "mul": lambda a, b, _: a * b,
    "min": lambda a, b, _: min(a, b),
    "max": lambda a, b, _: max(a, b),
    "minsi": lambda a, b, _: min(a, b),
    "maxsi": lambda a, b, _: max(a, b),
    "minui": lambda a, b, kind: min(a, b, key=lambda value: _unsigned(value, kind)),
    "maxui": lambda a, b, kind: max(a, b, key=lambda value: _unsigned(value, kind)),
    "and": lambda a, b, _: a & b,
    "or": lambda a, b, _: a | b,
    "xor": lambda a, b, _: a ^ b,
}


def combine(operator: str, values: Iterable[int], kind: str) -> int:
    """Return the reduction of values of a type."""
    step = _COMBINED[operator.removesuffix("numf").removesuffix("imumf")]
    return reduce(lambda a, b: wrapped(step(a, b, kind), kind), values)
