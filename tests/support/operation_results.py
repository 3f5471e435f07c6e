"""The expected results of operations of the gpu dialect, thread by thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import product
from math import isnan, prod
from struct import pack, unpack

from support.float8 import FORMATS, Format, decoded, encoded
from support.operation_probe import (
    Dim3,
    Expected,
    Probe,
    Row,
    Thread,
    combine,
    factor,
    given,
    wrapped,
)

INTEGER = ("add", "mul", "minsi", "maxsi", "minui", "maxui", "and", "or", "xor")
FLOATING = ("add", "mul", "minnumf", "maxnumf", "minimumf", "maximumf")


def _input(operator: str, kind: str) -> tuple[str, Callable[[int, str], int]]:
    is_factor = operator == "mul" and kind[0] != "i"
    return (f"%m_{kind}", factor) if is_factor else (f"%v_{kind}", given)


def _identifiers() -> list[Row]:
    rows = []
    for axis, letter in enumerate("xyz"):
        for name, member in (
            ("thread_id", lambda t, a: t.thread[a]),
            ("block_id", lambda t, a: t.block[a]),
            ("block_dim", lambda t, a: t.block_dim[a]),
            ("grid_dim", lambda t, a: t.grid_dim[a]),
            ("global_id", lambda t, a: t.block[a] * t.block_dim[a] + t.thread[a]),
        ):
            rows.append(
                Row(
                    f"{name} {letter}",
                    f"%r$ = gpu.{name} {letter}",
                    "index",
                    partial(member, a=axis),
                )
            )
    rows += [
        Row("lane_id", "%r$ = gpu.lane_id", "index", lambda t: t.lane),
        Row("subgroup_id", "%r$ = gpu.subgroup_id : index", "index", lambda t: t.number // t.warp),
        Row(
            "num_subgroups",
            "%r$ = gpu.num_subgroups : index",
            "index",
            lambda t: -(-prod(t.block_dim) // t.warp),
        ),
        Row("subgroup_size", "%r$ = gpu.subgroup_size : index", "index", lambda t: t.warp),
        Row(
            "thread_id x upper_bound",
            "%r$ = gpu.thread_id x upper_bound 5",
            "index",
            lambda t: t.thread[0],
        ),
    ]
    return rows


def _source(mode: str, lane: int, offset: int) -> int:
    return {"xor": lane ^ offset, "up": lane - offset, "down": lane + offset, "idx": offset}[mode]


def _taken(thread: Thread, lane: int, kind: str) -> int | None:
    """Return the input of a lane of the subgroup; None if there is no such lane."""
    return given(thread.lanes[lane], kind) if lane < len(thread.lanes) else None


def _brought_by(lane: int, kind: str, thread: Thread) -> int | None:
    return _taken(thread, lane, kind)


def _widths(warp: int) -> list[int]:
    return [width for width in (1, 2, 4, 8, 16, 32, 64) if width <= warp]


def _shuffles(warp: int) -> Iterable[Row]:
    shapes = [("i32", width) for width in (*_widths(warp), 3, 12, 20)]
    shapes += [(kind, width) for kind in ("f32", "i64", "f64") for width in (8, warp)]
    for mode, (kind, width) in product(("xor", "up", "down", "idx"), shapes):
        yield from _shuffle(mode, kind, width)
    for mode, kind in product(("xor", "idx"), ("i8", "i16", "f16", "bf16")):
        yield from _shuffle(mode, kind, warp, since=22)


def _shuffle(mode: str, kind: str, width: int, since: int = 19) -> Iterable[Row]:
    """Yield rows for both results of a shuffle: the value, if it is defined, and whether it is valid."""
    offset = max(1, width // 2) - (1 if mode in {"up", "down"} and width > 4 else 0)
    offset = 0 if width == 1 and mode == "idx" else offset
    tag = f"{mode} {kind} of {width}"

    def source(thread: Thread) -> int | None:
        found = _source(mode, thread.lane, offset)
        return found if 0 <= found < width else None

    def value(thread: Thread) -> int | None:
        lane = source(thread)
        return None if lane is None or thread.lane >= width else _taken(thread, lane, kind)

    def has_source(thread: Thread) -> int | None:
        lane = source(thread)
        if thread.lane >= width or (lane is not None and lane >= len(thread.lanes)):
            return None
        return int(lane is not None)

    text = (
        f"%o$ = arith.constant {offset} : i32\n%w$ = arith.constant {width} : i32\n"
        f"%r$, %ok$ = gpu.shuffle {mode} %v_{kind}, %o$, %w$ : {kind}"
    )
    yield Row(f"shuffle {tag}", text, kind, value, since)
    valid = text.replace("%r$, %ok$", "%x$, %r$")
    yield Row(f"valid {tag}", valid, "i1", has_source, since)
    if kind == "i32" and width < 32:
        known = f"%w$ = arith.constant {width} : i32"
        later = f"""%k$ = arith.constant {width} : i32
%x$ = arith.index_cast %sx : index to i32
%c20$ = arith.constant 20 : i32
%none$ = arith.shrui %x$, %c20$ : i32
%w$ = arith.ori %k$, %none$ : i32"""
        yield Row(f"shuffle {tag}, known at run time", text.replace(known, later), kind, value)


def _in_control_flow(warp: int) -> Iterable[Row]:
    """Yield shuffles in a loop, under a subgroup-uniform condition, and in both branches of a lane condition."""

    def scanned(thread: Thread) -> int:
        return wrapped(
            sum(given(n, "i32") for n in range(thread.lanes[0], thread.number + 1)), "i32"
        )

    yield Row(
        "shuffle in a loop",
        f"""%five$ = arith.constant {warp.bit_length() - 1} : index
%zero$ = arith.constant 0 : index
%step$ = arith.constant 1 : index
%w$ = arith.constant {warp} : i32
%r$ = scf.for %i = %zero$ to %five$ step %step$ iter_args(%sum = %v_i32) -> (i32) {{
  %i32 = arith.index_cast %i : index to i32
  %distance = arith.shli %c1, %i32 : i32
  %other, %ok = gpu.shuffle up %sum, %distance, %w$ : i32
  %added = arith.addi %sum, %other : i32
  %next = arith.select %ok, %added, %sum : i32
  scf.yield %next : i32
}}""",
        "i32",
        scanned,
    )

    def branched(thread: Thread) -> int | None:
        value = _taken(thread, thread.lane ^ 2, "i32")
        return None if value is None else value + (1000 if thread.lane % 2 else 2000)

    yield Row(
        "shuffle on both sides of a branch",
        f"""%w$ = arith.constant {warp} : i32
%odd$ = arith.andi %l, %c1 : i32
%is$ = arith.cmpi eq, %odd$, %c1 : i32
%r$ = scf.if %is$ -> (i32) {{
  %k = arith.constant 1000 : i32
  %a, %ok = gpu.shuffle xor %v_i32, %c2, %w$ : i32
  %s = arith.addi %a, %k : i32
  scf.yield %s : i32
}} else {{
  %k = arith.constant 2000 : i32
  %a, %ok = gpu.shuffle xor %v_i32, %c2, %w$ : i32
  %s = arith.addi %a, %k : i32
  scf.yield %s : i32
}}""",
        "i32",
        branched,
    )

    def first_half(thread: Thread) -> int | None:
        return _taken(thread, thread.lane ^ 8, "i32") if thread.lane < 16 else -1

    yield Row(
        "shuffle of the first lanes only",
        """%w$ = arith.constant 16 : i32
%is$ = arith.cmpi ult, %l, %w$ : i32
%r$ = scf.if %is$ -> (i32) {
  %a, %ok = gpu.shuffle xor %v_i32, %c8, %w$ : i32
  scf.yield %a : i32
} else {
  scf.yield %cm1 : i32
}""",
        "i32",
        first_half,
    )


def _rotations(warp: int) -> Iterable[Row]:
    shapes = [("i32", width, offset) for width in _widths(warp) for offset in {0, width // 2 + 1}]
    others = ("f32", "i64", "f64", "f16", "i8")
    shapes += [(kind, width, 3) for kind in others for width in (8, warp)]
    for kind, width, offset in shapes:
        if offset >= width:
            continue

        def value(
            thread: Thread, kind: str = kind, width: int = width, offset: int = offset
        ) -> int | None:
            source = (thread.lane + offset) % width
            inside = thread.lane < width
            return _taken(thread, source, kind) if inside else None

        text = f"%r$, %ok$ = gpu.rotate %v_{kind}, {offset}, {width} : {kind}"
        tag = f"{kind} by {offset} of {width}"
        yield Row(f"rotate {tag}", text, kind, value, 22)
        if kind == "i32":
            valid = text.replace("%r$, %ok$", "%x$, %r$")
            yield Row(f"valid rotate {tag}", valid, "i1", partial(_is_among, width), 22)


def _is_among(width: int, thread: Thread) -> int | None:
    return 1 if thread.lane < width else None


def _given_by(number: Callable[[Thread], int], kind: str) -> Expected:
    """Expect the input of the thread with this linear index."""
    return lambda thread: given(number(thread), kind)


def _opposite(thread: Thread) -> int:
    return prod(thread.block_dim) - 1 - thread.number


def _broadcasts(warp: int) -> Iterable[Row]:
    for kind, lane in product(("i32", "i64", "f32", "f64", "f16", "i8"), (0, 7, warp - 1)):
        yield Row(
            f"subgroup_broadcast {kind} from {lane}",
            f"%o$ = arith.constant {lane} : i32\n%r$ = gpu.subgroup_broadcast %v_{kind}, specific_lane %o$ : {kind}",
            kind,
            partial(_brought_by, lane, kind),
            22,
        )


def _reduced_types() -> Iterable[tuple[str, str]]:
    yield from product(INTEGER, ("i8", "i16", "i32", "i64"))
    yield from product(FLOATING, ("f16", "f32", "f64", "bf16"))


def _reduced(members: Callable[[Thread], range], operator: str, kind: str) -> Expected:
    """Expect the reduction of the inputs of some threads."""
    return lambda thread: _reduction(operator, kind, members(thread))


@cache
def _reduction(operator: str, kind: str, members: range) -> int:
    _, of = _input(operator, kind)
    return combine(operator, (of(number, kind) for number in members), kind)


def _of_subgroup(thread: Thread) -> range:
    return thread.lanes


def _of_block(thread: Thread) -> range:
    return range(prod(thread.block_dim))


def _subgroup_reductions() -> Iterable[Row]:
    for operator, kind in _reduced_types():
        value, _ = _input(operator, kind)
        yield Row(
            f"subgroup_reduce {operator} {kind}",
            f"%r$ = gpu.subgroup_reduce {operator} {value} : ({kind}) -> {kind}",
            kind,
            _reduced(_of_subgroup, operator, kind),
            22 if kind == "bf16" else 19,
        )
    for operator in ("add", "minsi", "maxui", "and", "or", "xor"):
        yield Row(
            f"subgroup_reduce {operator} uniform",
            f"%r$ = gpu.subgroup_reduce {operator} %v_i32 uniform : (i32) -> i32",
            "i32",
            _reduced(_of_subgroup, operator, "i32"),
        )
    yield Row(
        "subgroup_reduce add of a vector",
        """%b$ = vector.broadcast %v_i32 : i32 to vector<2xi32>
%k$ = arith.constant dense<[1, 3]> : vector<2xi32>
%p$ = arith.muli %b$, %k$ : vector<2xi32>
%s$ = gpu.subgroup_reduce add %p$ : (vector<2xi32>) -> vector<2xi32>
%r$ = vector.extract %s$[1] : i32 from vector<2xi32>""",
        "i32",
        lambda t: 3 * sum(given(n, "i32") for n in t.lanes),
    )
    yield Row(
        "subgroup_reduce add of a vector of halves",
        """%b$ = vector.broadcast %v_f16 : f16 to vector<4xf16>
%s$ = gpu.subgroup_reduce add %b$ : (vector<4xf16>) -> vector<4xf16>
%r$ = vector.extract %s$[3] : f16 from vector<4xf16>""",
        "f16",
        lambda t: sum(given(n, "f16") for n in t.lanes),
    )
    for operator, is_nan in (("minnumf", False), ("minimumf", True)):
        yield Row(
            f"subgroup_reduce {operator} with a NaN",
            f"%s$ = gpu.subgroup_reduce {operator} %nan_f32 : (f32) -> f32\n"
            "%r$ = arith.cmpf uno, %s$, %s$ : f32",
            "i1",
            partial(_has_lane, 5) if is_nan else lambda _: 0,
        )


def _has_lane(lane: int, thread: Thread) -> int:
    return int(lane < len(thread.lanes))


def _clusters(warp: int) -> Iterable[Row]:
    shapes = ((1, 1), (2, 1), (4, 1), (16, 1), (warp, 1), (2, warp // 2), (4, 2), (8, 4), (4, 8))
    for size, stride in shapes:

        def members(thread: Thread, size: int = size, stride: int = stride) -> range:
            span = size * stride
            first = thread.lane // span * span + thread.lane % stride
            return thread.lanes[first : first + span : stride]

        shape = f"size = {size}, stride = {stride}" if stride > 1 else f"size = {size}"
        for operator, kind in (("add", "i32"), ("add", "f32"), ("maximumf", "f32")):
            yield Row(
                f"subgroup_reduce {operator} {kind} cluster({shape})",
                f"%r$ = gpu.subgroup_reduce {operator} %v_{kind} cluster({shape}) : ({kind}) -> {kind}",
                kind,
                _reduced(members, operator, kind),
                22,
            )


def _block_reductions() -> Iterable[Row]:
    shapes = [*product(INTEGER, ("i32", "i64")), *product(FLOATING, ("f32", "f64"))]
    shapes += [
        *product(("add", "minsi", "maxui"), ("i8", "i16")),
        *product(("add", "maxnumf"), ("f16",)),
    ]
    for operator, kind in shapes:
        value, _ = _input(operator, kind)
        yield Row(
            f"all_reduce {operator} {kind}",
            f"%r$ = gpu.all_reduce {operator} {value} uniform {{}} : ({kind}) -> {kind}",
            kind,
            _reduced(_of_block, operator, kind),
        )
    yield from _regions()
    yield Row(
        "all_reduce in a loop, not marked",
        """%zero$ = arith.constant 0 : index
%three$ = arith.constant 3 : index
%step$ = arith.constant 1 : index
%r$ = scf.for %i = %zero$ to %three$ step %step$ iter_args(%sum = %n) -> (i32) {
  %all = gpu.all_reduce add %sum {} : (i32) -> i32
  %next = arith.addi %all, %n : i32
  scf.yield %next : i32
}""",
        "i32",
        _summed_three_times,
    )


def _regions() -> Iterable[Row]:
    kinds = [("xori", "xor", kind) for kind in ("i8", "i16", "i32", "i64")]
    kinds += [("maximumf", "max", kind) for kind in ("f16", "f32", "f64", "bf16")]
    for operation, operator, kind in kinds:
        yield Row(
            f"all_reduce {kind} with a region",
            f"""%r$ = gpu.all_reduce %v_{kind} uniform {{
^bb(%p: {kind}, %q: {kind}):
  %s = arith.{operation} %p, %q : {kind}
  gpu.yield %s : {kind}
}} : ({kind}) -> {kind}""",
            kind,
            _reduced(_of_block, operator, kind),
            22 if kind == "bf16" else 19,
        )
    yield Row(
        "all_reduce with a region of several blocks",
        """%r$ = gpu.all_reduce %v_i32 uniform {
^bb(%p: i32, %q: i32):
  %s = arith.cmpi slt, %p, %q : i32
  cf.cond_br %s, ^first, ^second
^first:
  gpu.yield %p : i32
^second:
  %none = arith.constant 0 : i32
  %t = arith.subi %q, %none : i32
  gpu.yield %t : i32
} : (i32) -> i32""",
        "i32",
        _reduced(_of_block, "minsi", "i32"),
    )


def _summed_three_times(thread: Thread) -> int:
    return _summed(prod(thread.block_dim), thread.number)


@cache
def _summed(threads: int, number: int) -> int:
    total, summed = 0, threads * (threads - 1) // 2
    for _ in range(3):
        total = summed
        summed = threads * total + threads * (threads - 1) // 2
    return wrapped(total + number, "i32")


_SHARED = "#gpu.address_space<workgroup>"
_ATTRIBUTIONS = (
    f"workgroup(%words : memref<1024xi32, {_SHARED}>, %doubles : memref<1024xf64, {_SHARED}>) "
    "private(%own : memref<4xi32, #gpu.address_space<private>>)"
)


def _memory() -> Iterable[Row]:
    for buffer, kind in (("words", "i32"), ("doubles", "f64")):
        yield Row(
            f"barrier between workgroup memory of {kind}",
            f"""memref.store %v_{kind}, %{buffer}[%number] : memref<1024x{kind}, {_SHARED}>
gpu.barrier
%one$ = arith.constant 1 : index
%last$ = arith.subi %threads, %one$ : index
%from$ = arith.subi %last$, %number : index
%r$ = memref.load %{buffer}[%from$] : memref<1024x{kind}, {_SHARED}>
gpu.barrier {{address_spaces = [#gpu.address_space<workgroup>]}}""",
            kind,
            _given_by(_opposite, kind),
        )
    yield Row(
        "private memory across barriers",
        """%four$ = arith.constant 4 : index
%slot$ = arith.remui %number, %four$ : index
memref.store %v_i32, %own[%slot$] : memref<4xi32, #gpu.address_space<private>>
gpu.barrier
memref.store %n, %words[%number] : memref<1024xi32, #gpu.address_space<workgroup>>
gpu.barrier
%r$ = memref.load %own[%slot$] : memref<4xi32, #gpu.address_space<private>>""",
        "i32",
        lambda t: given(t.number, "i32"),
    )
    yield Row(
        "dynamic_shared_memory, two views",
        f"""%bytes$ = gpu.dynamic_shared_memory : memref<?xi8, {_SHARED}>
%begin$ = arith.constant 0 : index
%behind$ = arith.constant 4096 : index
%a$ = memref.view %bytes$[%begin$][] : memref<?xi8, {_SHARED}> to memref<1024xi32, {_SHARED}>
%b$ = memref.view %bytes$[%behind$][] : memref<?xi8, {_SHARED}> to memref<1024xi64, {_SHARED}>
memref.store %v_i32, %a$[%number] : memref<1024xi32, {_SHARED}>
memref.store %v_i64, %b$[%number] : memref<1024xi64, {_SHARED}>
gpu.barrier
%one$ = arith.constant 1 : index
%last$ = arith.subi %threads, %one$ : index
%from$ = arith.subi %last$, %number : index
%x$ = memref.load %a$[%from$] : memref<1024xi32, {_SHARED}>
%y$ = memref.load %b$[%from$] : memref<1024xi64, {_SHARED}>
%wide$ = arith.extsi %x$ : i32 to i64
%r$ = arith.addi %wide$, %y$ : i64
gpu.barrier""",
        "i64",
        lambda t: given(_opposite(t), "i32") + given(_opposite(t), "i64"),
    )


def _is_normal(thread: Thread) -> int:
    exponent = (thread.number * 0x4400000) >> 23 & 0xFF
    return int(exponent not in {0, 0xFF})


def _power(thread: Thread) -> int:
    base, exponent = thread.number - 5, thread.number % 40 - 3
    if exponent >= 0:
        return (int(pow(base, exponent)) + (1 << 31)) % (1 << 32) - (1 << 31)
    return {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)


def _math() -> Iterable[Row]:
    yield Row(
        "math.isnormal",
        """%scale$ = arith.constant 71303168 : i32
%bits$ = arith.muli %n, %scale$ : i32
%float$ = arith.bitcast %bits$ : i32 to f32
%is$ = math.isnormal %float$ : f32
%r$ = arith.extui %is$ : i1 to i32""",
        "i32",
        _is_normal,
        22,
    )
    yield Row(
        "math.ipowi",
        """%five$ = arith.constant 5 : i32
%forty$ = arith.constant 40 : i32
%three$ = arith.constant 3 : i32
%base$ = arith.subi %n, %five$ : i32
%rest$ = arith.remui %n, %forty$ : i32
%exponent$ = arith.subi %rest$, %three$ : i32
%r$ = math.ipowi %base$, %exponent$ : i32""",
        "i32",
        _power,
    )
    yield Row(
        "math.clampf",
        """%low$ = arith.constant 10.0 : f32
%high$ = arith.constant 20.0 : f32
%float$ = arith.uitofp %n : i32 to f32
%clamped$ = math.clampf %float$ to [%low$, %high$] : f32
%r$ = arith.fptosi %clamped$ : f32 to i32""",
        "i32",
        lambda t: min(max(t.number, 10), 20),
        22,
    )


def _float8_input(thread: Thread) -> float:
    """Return a number with a magnitude from 2**-20 to 2**18; every second one is negative."""
    bits = (thread.number * 1466015 + 0x35000000 | (thread.number & 1) << 31) % (1 << 32)
    number: float = unpack("<f", bits.to_bytes(4, "little"))[0]
    return number


def _float8() -> Iterable[Row]:
    """Yield conversions to each format, of numbers, and from each format, of all codes."""
    for of in FORMATS:
        yield Row(
            f"truncf to {of.name}",
            f"""%step$ = arith.constant 1466015 : i32
%start$ = arith.constant 889192448 : i32
%shift$ = arith.constant 31 : i32
%times$ = arith.muli %n, %step$ : i32
%size$ = arith.addi %times$, %start$ : i32
%sign$ = arith.shli %n, %shift$ : i32
%both$ = arith.ori %size$, %sign$ : i32
%float$ = arith.bitcast %both$ : i32 to f32
%small$ = arith.truncf %float$ : f32 to {of.name}
%code$ = arith.bitcast %small$ : {of.name} to i8
%r$ = arith.extui %code$ : i8 to i32""",
            "i32",
            partial(_float8_code, of),
            of.since,
        )
        yield Row(
            f"extf from {of.name}",
            f"""%code$ = arith.trunci %n : i32 to i8
%small$ = arith.bitcast %code$ : i8 to {of.name}
%float$ = arith.extf %small$ : {of.name} to f32
%r$ = arith.bitcast %float$ : f32 to i32""",
            "i32",
            partial(_float8_bits, of),
            of.since,
        )


def _float8_code(of: Format, thread: Thread) -> int | None:
    return encoded(_float8_input(thread), of)


def _float8_bits(of: Format, thread: Thread) -> int | None:
    number = decoded(thread.number % 256, of)
    return None if isnan(number) else int(unpack("<i", pack("<f", number))[0])


def _first_lane(warp: int) -> Iterable[Row]:
    yield Row(
        "warp_execute_on_lane_0 with a result",
        f"""%r$ = gpu.warp_execute_on_lane_0(%lane)[{warp}] args(%v_i32 : i32) -> (i32) {{
^bb0(%a: i32):
  %b = arith.addi %a, %c50 : i32
  gpu.yield %b : i32
}}""",
        "i32",
        lambda t: given(t.lanes[0], "i32") + 50,
        22,
    )
    yield Row(
        "warp_execute_on_lane_0 with distributed vectors",
        f"""%parts$ = vector.from_elements %v_i32, %n : vector<2xi32>
%part$ = gpu.warp_execute_on_lane_0(%lane)[{warp}] args(%parts$ : vector<2xi32>) -> (vector<1xi32>) {{
^bb0(%all: vector<{2 * warp}xi32>):
  %half = vector.extract_strided_slice %all {{offsets = [0], sizes = [{warp}], strides = [1]}} : vector<{2 * warp}xi32> to vector<{warp}xi32>
  gpu.yield %half : vector<{warp}xi32>
}}
%r$ = vector.extract %part$[0] : i32 from vector<1xi32>""",
        "i32",
        lambda t: t.lanes[t.lane // 2] if t.lane % 2 else given(t.lanes[t.lane // 2], "i32"),
        22,
    )
    yield Row(
        "warp_execute_on_lane_0 of 32 lanes",
        """%r$ = gpu.warp_execute_on_lane_0(%lane)[32] -> (f32) {
  gpu.yield %v_f32 : f32
}""",
        "f32",
        lambda t: given(t.lanes[t.lane // 32 * 32], "f32"),
        22,
    )
    yield Row(
        "warp_execute_on_lane_0 without one",
        f"""memref.store %cm1, %words[%number] : memref<1024xi32, {_SHARED}>
gpu.warp_execute_on_lane_0(%lane)[{warp}] {{
  memref.store %n, %words[%number] : memref<1024xi32, {_SHARED}>
}}
%r$ = memref.load %words[%number] : memref<1024xi32, {_SHARED}>""",
        "i32",
        lambda t: t.number if t.lane == 0 else -1,
        22,
    )


# Complete and partial subgroups of 32 and of 64 threads, along one, two and three axes.
_BLOCKS: tuple[Dim3, ...] = ((96, 1, 1), (20, 3, 2), (160, 1, 1), (16, 14, 1), (1, 1, 1))
_LARGE: tuple[Dim3, ...] = ((1000, 1, 1), (31, 33, 1), (10, 4, 25), (32, 32, 1))


def probes_for(warp: int) -> tuple[Probe, ...]:
    """Return the probes for a subgroup size."""
    reductions = list(_block_reductions())
    exchanges = [*_shuffles(warp), *_in_control_flow(warp)]
    return (
        Probe(
            "identifiers",
            [*_identifiers(), *_math(), *_float8()],
            ((5, 4, 3), *_BLOCKS),
            grid=(3, 2, 2),
            warp=warp,
        ),
        Probe("exchange", exchanges, ((8, 4, 2), *_BLOCKS), warp=warp),
        Probe("turn", [*_rotations(warp), *_broadcasts(warp)], _BLOCKS, warp=warp),
        Probe("subgroups", [*_subgroup_reductions(), *_clusters(warp)], _BLOCKS, warp=warp),
        Probe("blocks", reductions, (*_BLOCKS, *_LARGE), grid=(2, 1, 1), warp=warp),
        Probe(
            "full_subgroups",
            list(_subgroup_reductions()),
            [(64, 2, 1)],
            knows_block=True,
            warp=warp,
        ),
        Probe(
            "memory",
            [*_memory(), *_first_lane(warp)],
            _BLOCKS,
            attributions=_ATTRIBUTIONS,
            dynamic=4096 + 8192,
            warp=warp,
        ),
    )


PROBES = probes_for(32)
