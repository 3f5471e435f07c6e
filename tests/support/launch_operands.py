"""Operands of launches of many types: each kernel stores its operand as numbers of 64 bits, between two bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

FIRST, LAST = 11, -13


class Operand(NamedTuple):
    """A type, the code that makes a value `%a` on the host, and the code that makes numbers of it in a kernel."""

    name: str
    type: str
    host: tuple[str, ...]
    device: tuple[str, ...]
    expected: tuple[int, ...]


def _number(index: int, kind: str, source: str) -> str:
    """Return the operation that converts element `index` to i64."""
    operation = {"i1": "arith.extui", "index": "arith.index_cast"}.get(kind, "arith.extsi")
    if kind == "i64":
        return f"%n{index} = arith.addi {source}, %zero : i64"
    if kind.startswith(("f", "bf")):
        operation = "arith.fptosi"
    return f"%n{index} = {operation} {source} : {kind} to i64"


def _literal(kind: str, value: int) -> str:
    if kind == "i1":
        return "true" if value else "false"
    return repr(float(value)) if kind.startswith(("f", "bf")) else str(value)


def _scalar(kind: str, value: int) -> Operand:
    suffix = "" if kind == "i1" else f" : {kind}"
    constant = f"%a = arith.constant {_literal(kind, value)}{suffix}"
    return Operand(kind, kind, (constant,), (_number(0, kind, "%a"),), (value,))


def _wide(kind: str, value: int) -> Operand:
    device = (
        f"%bits = arith.constant 64 : {kind}",
        f"%upper = arith.shrsi %a, %bits : {kind}",
        f"%n0 = arith.trunci %a : {kind} to i64",
        f"%n1 = arith.trunci %upper : {kind} to i64",
    )
    low = (value + 2**63) % 2**64 - 2**63
    constant = f"%a = arith.constant {value} : {kind}"
    return Operand(kind, kind, (constant,), device, (low, value >> 64))


def _vector(shape: Sequence[int], kind: str, values: Sequence[int]) -> Operand:
    sizes = "x".join(map(str, shape))
    vector = f"vector<{sizes}x{kind}>"
    places = list(product(*map(range, shape)))
    device: list[str] = []
    for index, place in enumerate(places):
        where = ", ".join(map(str, place))
        device.append(f"%e{index} = vector.extract %a[{where}] : {kind} from {vector}")
        device.append(_number(index, kind, f"%e{index}"))
    listed = _nested(shape, [_literal(kind, value) for value in values])
    host = f"%a = arith.constant dense<{listed}> : {vector}"
    return Operand(f"v{sizes}_{kind}", vector, (host,), tuple(device), tuple(values))


def _nested(shape: Sequence[int], words: Sequence[str]) -> str:
    if not shape:
        return words[0]
    step = len(words) // shape[0]
    parts = (_nested(shape[1:], words[at : at + step]) for at in range(0, len(words), step))
    return f"[{', '.join(parts)}]"


def _struct(name: str, kind: str, *members: tuple[str, str, int]) -> Operand:
    """Return an operand of a struct or array. A member has a position, a type and a value."""
    host, device, value = [f"%v = llvm.mlir.undef : {kind}"], [], "%v"
    for index, (place, member, number) in enumerate(members):
        made = "%a" if index == len(members) - 1 else f"%v{index}"
        host.append(f"%m{index} = llvm.mlir.constant({number} : {member}) : {member}")
        host.append(f"{made} = llvm.insertvalue %m{index}, {value}[{place}] : {kind}")
        device.append(f"%e{index} = llvm.extractvalue %a[{place}] : {kind}")
        device.append(_number(index, member, f"%e{index}"))
        value = made
    return Operand(name, kind, tuple(host), tuple(device), tuple(one[2] for one in members))


def _complex(kind: str) -> Operand:
    host = (
        f"%re = arith.constant 3.0 : {kind}",
        f"%im = arith.constant -4.0 : {kind}",
        f"%a = complex.create %re, %im : complex<{kind}>",
    )
    device = (
        f"%r = complex.re %a : complex<{kind}>",
        f"%i = complex.im %a : complex<{kind}>",
        _number(0, kind, "%r"),
        _number(1, kind, "%i"),
    )
    return Operand(f"complex_{kind}", f"complex<{kind}>", host, device, (3, -4))


def _memory(kind: str, values: Sequence[int]) -> Operand:
    """Return a memref whose elements the host stores, element by element."""
    memref = f"memref<{len(values)}x{kind}>"
    host, device = [f"%h = memref.alloc() : {memref}"], []
    for index, value in enumerate(values):
        literal = _literal(kind, value) + ("" if kind == "i1" else f" : {kind}")
        place = f"%k{index} = arith.constant {index} : index"
        host += [place, f"%x{index} = arith.constant {literal}"]
        host.append(f"memref.store %x{index}, %h[%k{index}] : {memref}")
        device += [place, f"%e{index} = memref.load %a[%k{index}] : {memref}"]
        wide = f"%n{index} = arith.trunci %e{index} : {kind} to i64"
        device.append(wide if kind in WIDE else _number(index, kind, f"%e{index}"))
    host += [f"%a = gpu.alloc() : {memref}", f"gpu.memcpy %a, %h : {memref}, {memref}"]
    return Operand(f"m_{kind}", memref, tuple(host), tuple(device), tuple(values))


def _layout(name: str, kind: str, view: str, place: str, expected: int) -> Operand:
    """Return a view of memory that contains 0, 1, 2, ..., of which the kernel loads one element."""
    host = (
        "%h = memref.alloc() : memref<32xi32>",
        "affine.for %i = 0 to 32 {",
        "  %q = arith.index_cast %i : index to i32",
        "  memref.store %q, %h[%i] : memref<32xi32>",
        "}",
        "%d = gpu.alloc() : memref<32xi32>",
        "gpu.memcpy %d, %h : memref<32xi32>, memref<32xi32>",
        f"%a = memref.reinterpret_cast %d to {view} : memref<32xi32> to {kind}",
    )
    device = (
        "%k1 = arith.constant 1 : index",
        "%k2 = arith.constant 2 : index",
        f"%e = memref.load %a[{place}] : {kind}",
        _number(0, "i32", "%e"),
    )
    return Operand(name, kind, host, device, (expected,))


# The emulator of AMD GPUs executes neither these, nor packed bits in memory.
WIDE = frozenset({"i65", "i96", "i128"})
_BITS = (1, 0, 0, 1, 1, 0, 1, 1)
_PAIRS = "!llvm.struct<(i8, array<2 x struct<(i16, i64)>>)>"
OPERANDS = (
    *(_scalar(kind, -3) for kind in ("i4", "i8", "i16", "i24", "i32", "i33", "i64", "index")),
    *(_scalar(kind, -4) for kind in ("f16", "bf16", "f32", "f64")),
    _scalar("i1", 1),
    *(_wide(kind, -(2**70) + 5) for kind in ("i96", "i128")),
    *(_vector((count,), "i1", _BITS[:count]) for count in (1, 2, 3, 8)),
    _vector((2, 2), "i1", _BITS[:4]),
    _vector((9,), "i4", range(-4, 5)),
    *(_vector((count,), "i8", range(count)) for count in (1, 2, 3, 4, 12)),
    _vector((3, 2), "i8", range(-3, 3)),
    *(_vector((count,), "i16", range(count)) for count in (2, 3, 5, 6)),
    *(_vector((count,), "i24", (70000, -70000, 3, 4)[:count]) for count in (3, 4)),
    _vector((3,), "i48", (2**40, -(2**40), 3)),
    *(_vector((count,), kind, range(count)) for count in (2, 3, 6) for kind in ("f16", "bf16")),
    _vector((3,), "f32", (1, -2, 3)),
    _vector((2, 3), "f64", range(6)),
    _vector((3,), "index", (2**40, -3, 4)),
    _struct("struct", "!llvm.struct<(i8, i64)>", ("0", "i8", -7), ("1", "i64", -(2**40))),
    _struct("packed", "!llvm.struct<packed (i8, i64)>", ("0", "i8", -7), ("1", "i64", -(2**40))),
    _struct("odd", "!llvm.struct<(i8, i24, i8)>", ("0", "i8", 1), ("1", "i24", -9), ("2", "i8", 3)),
    _struct("array", "!llvm.array<3 x i24>", *((f"{at}", "i24", 70000 - at) for at in range(3))),
    _struct("nested", _PAIRS, ("0", "i8", 1), ("1, 0, 1", "i64", -6), ("1, 1, 0", "i16", -7)),
    *map(_complex, ("f16", "f32", "f64")),
    _memory("i1", (1, 0, 1)),
    *(_memory(kind, (1, -2, 3)) for kind in ("i4", "i24", "i65", "i128", "index", "f16", "bf16")),
    _layout("strided", "memref<2x3xi32, strided<[8, 2], offset: 1>>",
            "offset: [1], sizes: [2, 3], strides: [8, 2]", "%k1, %k2", 13),
    _layout("reversed", "memref<3xi32, strided<[-2], offset: 9>>",
            "offset: [9], sizes: [3], strides: [-2]", "%k2", 5),
    _layout("scalar", "memref<i32, strided<[], offset: 9>>", "offset: [9], sizes: [], strides: []", "", 9),
)  # fmt: skip


def program(operands: Sequence[Operand] = OPERANDS) -> str:
    """Return a program that launches a kernel for each operand, and passes what it stored to `show`."""
    kernels = "\n".join(map(_kernel, operands))
    hosts = "\n".join(map(_host, operands))
    calls = "\n".join(f"  func.call @{one.name}() : () -> ()" for one in operands)
    return f"""\
module attributes {{gpu.container_module}} {{
llvm.func @show(!llvm.ptr, i64)
gpu.module @device {{
{kernels}
}}
{hosts}
func.func @main() {{
{calls}
  return
}}
}}
"""


def _kernel(one: Operand) -> str:
    stored = ["%n_first", "%n_last", *(f"%n{at}" for at in range(len(one.expected)))]
    lines = [
        "%zero = arith.constant 0 : i64",
        "%n_first = arith.extsi %first : i8 to i64",
        "%n_last = arith.extsi %last : i8 to i64",
        *one.device,
    ]
    for at, value in enumerate(stored):
        lines.append(f"%s{at} = arith.constant {at} : index")
        lines.append(f"memref.store {value}, %out[%s{at}] : memref<?xi64>")
    body = "\n".join(f"    {line}" for line in lines)
    return f"""\
  gpu.func @{one.name}(%first: i8, %a: {one.type}, %last: i8, %out: memref<?xi64>) kernel {{
{body}
    gpu.return
  }}"""


def _host(one: Operand) -> str:
    body = "\n".join(f"  {line}" for line in one.host)
    return f"""\
func.func private @{one.name}() {{
  %first = arith.constant {FIRST} : i8
  %last = arith.constant {LAST} : i8
  %one = arith.constant 1 : i32
  %size = arith.constant {len(one.expected) + 2} : index
{body}
  %out = gpu.alloc(%size) : memref<?xi64>
  %copy = memref.alloc(%size) : memref<?xi64>
  gpu.launch_func @device::@{one.name} blocks in (%one, %one, %one) threads in (%one, %one, %one) : i32
    args(%first : i8, %a : {one.type}, %last : i8, %out : memref<?xi64>)
  gpu.memcpy %copy, %out : memref<?xi64>, memref<?xi64>
  %address = memref.extract_aligned_pointer_as_index %copy : memref<?xi64> -> index
  %number = arith.index_cast %address : index to i64
  %pointer = llvm.inttoptr %number : i64 to !llvm.ptr
  %count = arith.index_cast %size : index to i64
  llvm.call @show(%pointer, %count) : (!llvm.ptr, i64) -> ()
  return
}}"""


SHOW = """\
#include <stdio.h>
void show(long long *numbers, long long count) {
  for (long long i = 0; i < count; ++i)
    printf("%lld ", numbers[i]);
  puts("");
}
"""


def wrong(printed: str, operands: Sequence[Operand] = OPERANDS) -> Iterator[tuple[str, object]]:
    """Yield the name and the line of each operand that did not arrive."""
    lines = printed.splitlines()
    for at, one in enumerate(operands):
        given = tuple(map(int, lines[at].split())) if at < len(lines) else None
        if given != (FIRST, LAST, *one.expected):
            yield one.name, given
